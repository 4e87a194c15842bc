import { defineConfig } from 'vitest/config'

/** Milliseconds of a wait for a condition that nothing announces; the limit only ends a hung one. */
const expect = { poll: { interval: 5, timeout: 20_000 } }

/** Runs for each file, also where files share what they import. */
const setupFiles = ['test/support/temporary-folder.ts']

export default defineConfig({
  test: {
    projects: [
      {
        test: {
          name: 'unit',
          expect,
          include: ['test/**/*.test.ts'],
          setupFiles,
          exclude: ['test/host/**', 'test/hostile/**', 'test/fuzz/**', 'test/kills/**', 'test/vm/**'],
          // Files share what they import, which takes three quarters of the time otherwise. Tests replace no modules.
          isolate: false,
          // Milliseconds each; the limit only ends a hung one, also on a busy machine.
          testTimeout: 30_000,
          // The first hook may have to build the addon.
          hookTimeout: 60_000,
        },
      },
      {
        test: {
          name: 'host',
          expect,
          include: ['test/host/**/*.test.ts'],
          setupFiles,
          fileParallelism: false,
          testTimeout: 60_000,
          hookTimeout: 120_000,
        },
      },
      {
        test: {
          name: 'hostile',
          expect,
          include: ['test/hostile/**/*.test.ts'],
          setupFiles: [...setupFiles, 'test/support/vm/show-guests.ts'],
          // An attack loads the whole machine.
          fileParallelism: false,
          testTimeout: 120_000,
          hookTimeout: 600_000,
        },
      },
      {
        test: {
          name: 'fuzz',
          expect,
          include: ['test/fuzz/**/*.test.ts'],
          setupFiles,
          // The first hook may have to build the addon or vminit.
          hookTimeout: 120_000,
          // Each file measures its memory, and leaves the other CPU to other groups. A target sets its own limits of time.
          fileParallelism: false,
        },
      },
      {
        test: {
          name: 'kills',
          expect,
          include: ['test/kills/**/*.test.ts'],
          setupFiles,
          // The moments of the kills are spread over the whole of each call, which others would make longer.
          fileParallelism: false,
          // Only the deaths at steps go on beside each other. They often wait for processes.
          maxConcurrency: 4,
          testTimeout: 60_000,
          hookTimeout: 300_000,
        },
      },
      {
        test: {
          name: 'vm',
          include: ['test/vm/**/*.test.ts'],
          setupFiles: [...setupFiles, 'test/support/vm/show-guests.ts'],
          // A guest keeps about one CPU busy, and often waits.
          maxWorkers: 2,
          // A test may boot its guest, which may take 120 s twice (test/support/vm/boot-guest.ts).
          testTimeout: 400_000,
          hookTimeout: 600_000,
        },
      },
    ],
  },
})
