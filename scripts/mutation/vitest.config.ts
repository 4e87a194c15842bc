import { defineConfig } from 'vitest/config'
import { TARGETS } from '../test/mutation-run.ts'

export default defineConfig({
  test: {
    include: TARGETS.flatMap(({ tests }) => tests),
    // A mutant may hang: a test of these takes a second at most.
    testTimeout: 10_000,
    expect: { poll: { interval: 5, timeout: 2000 } },
  },
})
