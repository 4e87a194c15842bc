import type { Agent } from '../../../src/client/container/container-session.ts'
import type { CreateSandboxRequest } from '../../../src/gen/agent.ts'
import type { DeepPartial } from '../../../src/gen/oci.ts'
import { bind } from '../containers/container-requests.ts'
import { type Pod, podOf } from '../containers/pod.ts'
import { bootTestGuest, type TestGuest, type TestGuestOptions } from './boot-guest.ts'

/** The mount point of the busybox disk in the guest. */
export const ROOT = '/run/kata-containers/sandbox/busybox'

/** Mounts the guest's own /proc, for a container that inspects or damages the guest. */
export const GUEST_PROC = bind('/proc', '/guest/proc')

export async function bootPod(
  options: TestGuestOptions = {},
  sandbox: DeepPartial<CreateSandboxRequest> = {},
): Promise<{ readonly guest: TestGuest; readonly pod: Pod }> {
  const guest = await bootTestGuest(options)
  try {
    return { guest, pod: await createPod(guest.agent, guest.rootSource, sandbox) }
  } catch (error) {
    const console = guest.consoleText()
    await guest.stop()
    throw new Error(`no sandbox; the console:\n${console}`, { cause: error })
  }
}

export async function createPod(
  agent: Agent,
  rootSource: string,
  sandbox: DeepPartial<CreateSandboxRequest> = {},
): Promise<Pod> {
  const disk = { driver: 'blk', source: rootSource, fstype: 'ext4', options: [], mountPoint: ROOT }
  await agent.createSandbox({ sandboxId: 'pod', hostname: 'vm-pod', storages: [disk], ...sandbox })
  return podOf(agent, ROOT)
}

/** Resolves with the first matching console line, past or future. Rejects when the guest ends without one. */
export async function consoleLine({ guest: { vm } }: TestGuest, wanted: RegExp): Promise<string> {
  const past = vm.console.lines.find((line) => wanted.test(line))
  if (past !== undefined) return past
  const { promise, resolve, reject } = Promise.withResolvers<string>()
  const stop = vm.console.onLine((line) => {
    if (wanted.test(line)) resolve(line)
  })
  void vm.exited.then(() =>
    reject(new Error(`the console ended without ${wanted}:\n${vm.console.lines.join('\n')}`)),
  )
  return promise.finally(stop)
}
