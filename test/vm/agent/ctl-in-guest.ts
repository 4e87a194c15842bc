import { join } from 'node:path'
import { buildAgentCtl } from '../../../src/build/agent-ctl.ts'
import { copyRequests } from '../../../src/client/files/copy-file.ts'
import { bind } from '../../support/containers/container-requests.ts'
import type { Pod } from '../../support/containers/pod.ts'
import type { CtlRun } from '../../support/ctl/run-ctl.ts'
import { VSOCK_ALLOWED } from '../../support/programs/vsock-attempts.ts'

const TOOL = '/run/kata-containers/shared/containers/agent-ctl.cjs'
const NODE = '/usr/lib/microvm-agent/node'

/**
 * The returned function runs agent-ctl with the guest's own Node in the container `tool`, whose processes may use vsock.
 */
export async function ctlInGuest(
  pod: Pod,
): Promise<(address: string, words: readonly string[], stdin?: string) => Promise<CtlRun>> {
  const file = join(await buildAgentCtl(), 'agent-ctl.cjs')
  for await (const request of copyRequests(file, TOOL)) await pod.agent.copyFile(request)
  const mounts = [bind('/', '/guest')]
  await pod.run('tool', ['sleep', '1000'], { mounts, spec: { Annotations: VSOCK_ALLOWED } })
  let count = 0
  return async (address, words, stdin = '') => {
    const args = ['chroot', '/guest', NODE, TOOL, '--address', address, ...words]
    const running = await pod.add('tool', `ctl-${count++}`, args)
    if (stdin !== '') await running.write(stdin)
    await running.closeStdin()
    const [stdout, stderr] = await Promise.all([running.readAll('stdout'), running.readAll('stderr')])
    return { status: await running.wait(), stdout: stdout.toString(), stderr: stderr.toString() }
  }
}
