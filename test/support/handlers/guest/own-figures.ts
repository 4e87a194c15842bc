import { Histogram } from '../../../../src/base/histogram.ts'
import type { OwnFigures } from '../../../../src/handlers/guest/metrics/own-figures.ts'

export function noFigures(): OwnFigures {
  const none = new Histogram([1]).distribution
  return {
    limits: () => [],
    methods: () => [],
    inFlight: () => [],
    loopDelay: () => none,
    deviceWaits: () => ({ found: none, failed: none }),
    uevents: () => ({ received: 0, failures: 0 }),
    stdioBytes: () => ({ stdin: 0, stdout: 0, stderr: 0 }),
    relayedBytes: () => 0n,
    restarts: () => 0,
    droppedSpans: () => 0,
    containerStates: () => [],
    containers: async () => [],
  }
}
