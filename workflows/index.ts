/**
 * What a worker can run. Every function that this file exports can be started as a workflow, so it
 * names them one by one.
 */
export { hold } from './hold.js';
export { refund } from './refund.js';
export { returnSale } from './returnSale.js';
export { settlePayment } from './settlePayment.js';
