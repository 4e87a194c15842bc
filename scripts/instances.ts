import { messageOf } from '../src/base/errors.ts'
import { projectRoot } from '../src/build/project.ts'
import { summaryLine } from './test/counts.ts'
import { INSTANCES } from './test/instances-run.ts'
import { readRun } from './test/read-run.ts'
import { runVitest } from './test/run-vitest.ts'

/**
 * `npm run instances -- [--lives N] [--seed N]`: instances with paused machines live random lives, in which QEMU, the holder
 * and the daemon are killed. A daemon dies before and after each write of its registry
 * and, in changes of snapshots, each command for QEMU. The exit status is 1 when one
 * went wrong or left something behind.
 */
try {
  const { numbers, seed } = readRun(process.argv.slice(2), ['lives'])
  const lives = numbers.get('lives') ?? 100
  console.log(`instances: ${lives} lives, --seed ${seed}`)
  const start = performance.now()
  const counts = await runVitest({
    root: projectRoot,
    project: 'host',
    patterns: [
      'test/host/wing/instance/lives.test.ts',
      'test/host/wing/service/daemon-deaths.test.ts',
      'test/host/wing/snapshots',
      'test/host/wing/migration',
      'test/host/wing/controller/cuts.test.ts',
      'test/host/wing/documents/full-disk.test.ts',
    ],
    once: true,
    write: (text) => process.stdout.write(text),
    env: { ...process.env, [INSTANCES.lives]: String(lives), [INSTANCES.seed]: String(seed) },
  })
  console.log(`minutes: ${((performance.now() - start) / 60_000).toFixed(1)}, --seed ${seed}`)
  console.log(summaryLine(counts))
  process.exitCode = counts.failed > 0 ? 1 : 0
} catch (error) {
  console.error(`instances: ${messageOf(error)}`)
  process.exitCode = 2
}
