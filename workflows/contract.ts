/**
 * All that the outside may rely on: names, ids, messages, and the one way to send them. For the
 * API, the CLI and the worker's entry; it holds a Temporal client, so workflow code never imports
 * it (workflow code imports messages.ts).
 */
export * from './messages.js';
export { connect, temporalOptions } from './contract/connect.js';
export type { Temporal, TemporalSettings } from './contract/connect.js';
export { refundWorkflowId, returnWorkflowId, settleWorkflowId, workflowId } from './ids.js';
export { adoptionRequest, holdStartOptions } from './contract/start.js';
export { checkSearchAttributes } from './contract/searchAttributes.js';
export type { SearchAttributesCheck } from './contract/searchAttributes.js';
export { send } from './contract/send.js';
export { sendRefund, sendReturn } from './contract/sendReturn.js';
export { sendDecision, sendSettle } from './contract/sendSettle.js';
export type { Answers, Holds, Message, Sent } from './contract/send.js';
export { taskQueuePrefix, taskQueues } from './taskQueues.js';
export type { TaskQueues } from './taskQueues.js';
