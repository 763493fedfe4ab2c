import { afterEach } from 'vitest';
import type { Answers, Sent } from '../../workflows/contract.js';
import { sharedService } from './service.js';
import type { Service, ServiceOptions } from './service.js';

/** What stands between the API and the workflows, for the claims of one test. */
export type Between = (
  pass: () => Promise<Sent<Answers['claimed']>>,
) => Promise<Sent<Answers['claimed']>>;

/** A service whose claims can be held up, or answered otherwise, on their way to the workflow. */
export function interceptedService(options: ServiceOptions = {}): {
  service: Service;
  /** Until the test's end. */
  put: (between: Between) => void;
  /** Claims that were sent to a workflow. */
  asked: () => number;
  /** Holds up every claim until it is opened. */
  barrier: () => { open: () => void; whenArrived: (count: number) => Promise<void> };
} {
  const through: Between = (pass) => pass();
  let between = through;
  let asked = 0;
  const service = sharedService({
    ...options,
    parts: (parts) => ({
      send: (holds, request, message, limits) => {
        const pass = () => parts.send(holds, request, message, limits);
        if (message.kind !== 'claimed') return pass();
        asked += 1;
        return between(pass as () => Promise<Sent<Answers['claimed']>>) as ReturnType<typeof pass>;
      },
    }),
  });
  afterEach(() => {
    between = through;
  });
  return {
    service,
    put: (next) => void (between = next),
    asked: () => asked,
    barrier() {
      let open!: () => void;
      const opened = new Promise<void>((resolve) => (open = resolve));
      let arrived = 0;
      between = async (pass) => {
        arrived += 1;
        await opened;
        return pass();
      };
      return {
        open,
        whenArrived: async (count) => {
          while (arrived < count) await new Promise((again) => setTimeout(again, 5));
        },
      };
    },
  };
}
