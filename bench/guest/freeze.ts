import { bootDiskPod, type DiskPod } from '../../test/support/vm/disk-pod.ts'
import { median, report } from '../support/figure.ts'

/** How long Quiesce of a pod of five containers and two disks takes, beside a `sync` of the same writes. */
const ROUNDS = 15
const WARM_UP_ROUNDS = 2
/** What Quiesce may add to the sync, in milliseconds. */
const MORE = 100

/** Writes something new to both disks at each `w`, and syncs at each `s`. */
const WRITING =
  'while read word; do if [ $word = s ]; then sync; else for d in /ext4 /xfs; do dd if=/dev/urandom of=$d/f bs=64k count=16 2> /dev/null; done; fi; echo done; done'

const disks = await bootDiskPod()
try {
  await measure(disks)
} finally {
  await disks.guest.stop()
}

async function measure({ lifecycle, onDisks, pod }: DiskPod): Promise<void> {
  const writing = await pod.run('writing', ['sh', '-c', WRITING], onDisks)
  for (const id of ['a1', 'a2', 'a3', 'a4'])
    await pod.run(id, ['sh', '-c', 'while true; do usleep 50000; done'], onDisks)
  const tell = async (word: string) => {
    const beganMs = performance.now()
    await writing.write(`${word}\n`)
    await writing.readUntil('done\n')
    return performance.now() - beganMs
  }
  const freeze = async () => {
    const beganMs = performance.now()
    await lifecycle.quiesce({})
    const frozenMs = performance.now()
    await lifecycle.thaw({})
    return { ms: frozenMs - beganMs, thawMs: performance.now() - frozenMs }
  }
  const times = { sync: [] as number[], quiesce: [] as number[], clean: [] as number[], thaw: [] as number[] }
  for (let round = -WARM_UP_ROUNDS; round < ROUNDS; round++) {
    await tell('w')
    const syncMs = await tell('s')
    const clean = await freeze()
    await tell('w')
    const { ms, thawMs } = await freeze()
    if (round < 0) continue
    times.sync.push(syncMs)
    times.clean.push(clean.ms)
    times.quiesce.push(ms)
    times.thaw.push(thawMs)
  }
  const [sync, value] = [median(times.sync), median(times.quiesce)]
  const phases = { sync, thaw: median(times.thaw), 'nothing to write': median(times.clean) }
  const goal = { unit: 'ms', floor: sync + MORE, limit: 1 } as const
  report({ figure: 'Quiesce of 5 containers, 2 disks', ...goal, value, phases })
}
