import { createContainerRequest } from '../../test/support/containers/container-requests.ts'
import { benchPod } from '../support/bench-pod.ts'
import { median, report } from '../support/figure.ts'
import { elapsedMs } from '../support/runtime-pair.ts'

/** CreateContainer with a storage that another container of the sandbox already uses, against one without a storage. */
const ROUNDS = 80
const WARM_UP_ROUNDS = 10

const STORAGE = {
  driver: 'ephemeral',
  source: 'tmpfs',
  fstype: 'tmpfs',
  options: ['size=1m'],
  mountPoint: '/run/kata-containers/sandbox/ephemeral/bench',
  shared: true,
}

const pod = await benchPod()
try {
  const create = async (id: string, storages: readonly (typeof STORAGE)[]) => {
    const request = createContainerRequest(id, pod.root, ['/bin/true'], { storages: [...storages] })
    const ms = await elapsedMs(() => pod.agent.createContainer(request))
    if (id !== 'first') await pod.remove(id)
    return ms
  }
  await create('first', [STORAGE])
  const times = { with: [] as number[], without: [] as number[] }
  for (let round = 0; round < WARM_UP_ROUNDS + ROUNDS; round++) {
    const order = round % 2 === 0 ? (['with', 'without'] as const) : (['without', 'with'] as const)
    for (const kind of order) {
      const ms = await create(kind, kind === 'with' ? [STORAGE] : [])
      if (round >= WARM_UP_ROUNDS) times[kind].push(ms)
    }
  }
  const figure = { value: median(times.with), floor: median(times.without), limit: 1.05 }
  report({ figure: 'CreateContainer with one more shared storage', unit: 'ms', ...figure })
} finally {
  await pod.stop()
}
