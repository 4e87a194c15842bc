import { expect } from 'vitest'
import { bind } from '../containers/container-requests.ts'
import type { Pod } from '../containers/pod.ts'

const OWN_CGROUP = { source: 'cgroup', destination: '/sys/fs/cgroup', type: 'cgroup', options: ['rw'] }

const GUEST_CGROUPS = bind('/sys/fs/cgroup', '/guest/cgroup')

/**
 * The container's first process divides its cgroup as systemd does on v2: it moves to a cgroup below, `inner`, and enables
 * controllers, which requires an upper cgroup without processes. Added processes must join its cgroup.
 */
export async function expectAddedProcessesIn(inner: string, pod: Pod): Promise<void> {
  const id = `divided-${inner}`
  const move = `cd /sys/fs/cgroup; mkdir ${inner}; echo $$ > ${inner}/cgroup.procs; echo moved; read line`
  const enable = 'echo "+memory +pids" > cgroup.subtree_control; cat cgroup.subtree_control; read line'
  const init = await pod.run(id, ['sh', '-c', `${move}; ${enable}`], { mounts: [OWN_CGROUP] })
  await init.readUntil('moved')
  const place = async (execId: string) => {
    const added = await pod.add(id, execId, ['sh', '-c', 'cat /proc/self/cgroup; exec sleep 1000'])
    return added.readUntil('\n')
  }
  expect(await place('before')).toBe(`0::/${inner}\n`)
  await init.write('enable\n')
  expect(await init.readUntil('\n')).toBe('memory pids\n')
  expect(await place('after')).toBe(`0::/${inner}\n`)
  await pod.remove(id)
  const left = await pod.output(`left-${inner}`, `ls -d /guest/cgroup/containers/${id} 2>/dev/null || true`, {
    mounts: [GUEST_CGROUPS],
  })
  expect(left).toBe('')
}
