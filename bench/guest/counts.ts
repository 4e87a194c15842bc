import { writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { withTemporaryFolder } from '../../src/build/temporary-folder.ts'
import { bind } from '../../test/support/containers/container-requests.ts'
import { bootPod } from '../../test/support/vm/guest-pod.ts'
import { reportCount } from '../support/figure.ts'
import { execTrue } from '../support/runtime-pair.ts'

/**
 * CPU time in an emulated guest whose clock advances by 1 ns with each instruction, so that it hardly depends on this
 * machine and on how busy it is. crun is the runtime. The cgroup of the agent has `vminit`, the broker and crun, too.
 */
const BOOTS = 5
/** The first calls cost more, because V8 compiles what is called often. */
const WARM_UP = 10
const CALLS = 50

/** Stands in for QEMU, whose instructions are counted in a single thread only. */
const COUNTING_QEMU = `#!/bin/sh
for word; do
  shift
  [ "$word" = tcg,thread=multi ] && word=tcg,thread=single
  set -- "$@" "$word"
done
PATH=\${PATH#*:} exec qemu-system-x86_64 "$@" -icount shift=0
`

/** Writes `[AGENT, CONTAINERS]` in microseconds for each line: the cgroups of the agent, and of the other containers. */
const READ_USAGE = `
  usage() { head -n 1 /guest/cgroup/$1/cpu.stat | cut -d ' ' -f 2; }
  while read line; do
    echo [$(usage agent), $(($(usage containers) - $(usage containers/reader)))]
  done`

const counts = new Map<string, number[]>()
await withTemporaryFolder(tmpdir(), async (folder) => {
  writeFileSync(join(folder, 'qemu-system-x86_64'), COUNTING_QEMU, { mode: 0o755 })
  process.env.PATH = `${folder}:${process.env.PATH}`
  process.env.MICROVM_ACCEL = 'tcg'
  for (let boot = 0; boot < BOOTS; boot += 1) await countOneBoot()
})
for (const [figure, values] of counts) reportCount(figure, values)

async function countOneBoot(): Promise<void> {
  // TCP differs less between boots than vsock, whose daemon is a thread beside the counted one.
  const { guest, pod } = await bootPod({ vsock: 'tcp', append: ['nokaslr', 'agent.runtime=crun'] })
  try {
    await pod.run('model', ['sleep', '1000000'])
    const mounts = [bind('/sys/fs/cgroup', '/guest/cgroup')]
    const reader = await pod.run('reader', ['sh', '-c', READ_USAGE], { mounts })
    const read = async (): Promise<readonly [agent: number, containers: number]> => {
      await reader.write('read\n')
      return JSON.parse(await reader.readUntil('\n'))
    }
    const each = async (what: string, call: (id: string) => Promise<unknown>) => {
      for (let count = 0; count < WARM_UP; count += 1) await call(`warm-${count}`)
      const before = await read()
      for (let count = 0; count < CALLS; count += 1) await call(`call-${count}`)
      const after = await read()
      add(`the agent's cgroup, ${what}`, (after[0] - before[0]) / CALLS)
      add(`the container's cgroup, ${what}`, (after[1] - before[1]) / CALLS)
    }
    await each('exec true', (id) => execTrue(pod.agent, 'model', id))
    await each('life of true', async (id) => {
      await (await pod.run(id, ['true'])).wait()
      await pod.remove(id)
    })
  } finally {
    await guest.stop()
  }
}

function add(figure: string, us: number): void {
  const name = `CPU time of ${figure}`
  counts.set(name, [...(counts.get(name) ?? []), us])
}
