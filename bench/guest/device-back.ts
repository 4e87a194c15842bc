import { once } from 'node:events'
import { listenForMany } from '../../test/support/host/host-ports.ts'
import { CRUN } from '../../test/support/vm/boot-guest.ts'
import { bootPod } from '../../test/support/vm/guest-pod.ts'
import { HOT_VSOCK, HotVsock } from '../../test/support/vm/hot-plug/hot-vsock.ts'
import { median, report } from '../support/figure.ts'

/** How long after a vsock device is back the first byte of a stream comes, whose process has gone on writing. */
const ROUNDS = 15
/** The goal for an emulated guest, in milliseconds. */
const GOAL = 300
const PORT = 7001
/** A device that carries nothing. */
const DEAF_MS = 30_000

const { guest, pod } = await bootPod({ ...HOT_VSOCK, append: [CRUN, 'agent.stream_grace=600'] })
const vsock = new HotVsock(guest)
try {
  let listening = await listenForMany(`${vsock.path}_${PORT}`)
  await pod.run('host', ['sh', '-c', 'while :; do echo line; usleep 10000; done'], {
    ports: { stdoutPort: PORT },
  })
  await once((await listening.next()).resume(), 'data')
  const times: number[] = []
  let deaf = 0
  for (let round = 0; round < ROUNDS; round++) {
    await vsock.unplug()
    listening.close()
    const path = `${vsock.nextPath}_${PORT}`
    listening = await listenForMany(path)
    const plugging = vsock.plug()
    const arrived = listening.next().then((socket) => once(socket.resume(), 'data'))
    await plugging
    const beganMs = performance.now()
    const late = new Promise((resolve) => setTimeout(resolve, DEAF_MS, 'late').unref())
    if ((await Promise.race([arrived, late])) === 'late') deaf += 1
    else times.push(performance.now() - beganMs)
  }
  report({
    figure: 'a vsock device is back until the first byte',
    unit: 'ms',
    value: median(times),
    floor: GOAL,
    limit: 1,
    phases: { most: Math.max(...times), deaf },
  })
} finally {
  await guest.stop()
  await vsock.end()
}
