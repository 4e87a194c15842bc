import { expect } from 'vitest'
import { bind } from '../containers/container-requests.ts'
import type { Pod } from '../containers/pod.ts'

/** A writable mount of a container's own cgroup, which the container may divide. */
const OWN_CGROUP = { source: 'cgroup', destination: '/sys/fs/cgroup', type: 'cgroup', options: ['rw'] }

const GUEST_CGROUPS = bind('/sys/fs/cgroup', '/guest/cgroup')

/**
 * Runs a container whose first process divides its cgroup as systemd does on v2: it moves to a cgroup below, `inner`,
 * and then enables controllers, which requires that the upper cgroup has no processes. Expects that added processes
 * join the cgroup of the first process, before the move and after it, and that all cgroups are removed.
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
