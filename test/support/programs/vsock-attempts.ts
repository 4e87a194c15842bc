import type { ContainerOptions } from '../containers/container-requests.ts'
import type { Pod } from '../containers/pod.ts'
import { guestProgram } from './guest/guest-program.ts'

/** The output of `vsock-attempts sockets` where AF_VSOCK and io_uring are denied. */
export const DENIED_SOCKETS = `socket EPERM
socket-with-upper-bits EPERM
socket-x32 EPERM
socket-i386 EPERM
socketcall-i386 EPERM
io_uring ENOSYS
io_uring-i386 ENOSYS
unix OK
inet-i386 OK
`

export const VSOCK_ALLOWED = { 'microvm.agent.container_vsock': 'allow' } as const

/** Starts a container. The returned function runs vsock-attempts as an added process with these arguments. */
export async function startAttempts(
  pod: Pod,
  id: string,
  options?: ContainerOptions,
): Promise<(...words: readonly string[]) => Promise<string>> {
  const install = 'cat > /tmp/attempts; chmod +x /tmp/attempts; echo there; sleep 1000'
  const init = await pod.run(id, ['sh', '-c', install], options)
  await init.write(await guestProgram('vsock-attempts'))
  await init.closeStdin()
  await init.readUntil('there')
  let count = 0
  return async (...words) => {
    const added = await pod.add(id, `attempt-${count++}`, ['/tmp/attempts', ...words])
    return (await added.readAll()).toString()
  }
}
