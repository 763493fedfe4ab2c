import { SearchAttributeType, defineSearchAttributeKey } from '@temporalio/common';

/** What operators filter holds by in the Temporal UI. */
export const holdSkus = defineSearchAttributeKey('HoldSkus', SearchAttributeType.KEYWORD_LIST);
/** The first 16 hexadecimal digits of the SHA-256 of the shop's buyer id. */
export const holdBuyer = defineSearchAttributeKey('HoldBuyer', SearchAttributeType.KEYWORD);
export const holdStatus = defineSearchAttributeKey('HoldStatus', SearchAttributeType.KEYWORD);
