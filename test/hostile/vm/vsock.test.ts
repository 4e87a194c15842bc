import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Pod } from '../../support/containers/pod.ts'
import { underAttack } from '../../support/hostile/attack.ts'
import { guestTarget } from '../../support/hostile/guest-target.ts'
import { portAfterKill } from '../../support/hostile/port-after-kill.ts'
import { DENIED_SOCKETS, startAttempts, VSOCK_ALLOWED } from '../../support/programs/vsock-attempts.ts'
import { bootTestGuest, cannotBoot, type TestGuest } from '../../support/vm/boot-guest.ts'
import { createPod } from '../../support/vm/guest-pod.ts'

const PORTS = ['1024', '1025', '1026', '1027']

const WITH_IO_URING = {
  DefaultAction: 'SCMP_ACT_ALLOW',
  Architectures: ['SCMP_ARCH_X86_64', 'SCMP_ARCH_X86', 'SCMP_ARCH_X32'],
  Syscalls: [{ Names: ['io_uring_setup'], Action: 'SCMP_ACT_ALLOW' }],
}

describe.skipIf(cannotBoot() !== undefined)('a container that wants the vsock ports of its guest', () => {
  let guest: TestGuest
  let pod: Pod
  beforeAll(async () => {
    guest = await bootTestGuest({ cpus: 1 })
    pod = await createPod(guest.agent, guest.rootSource)
  })
  afterAll(() => guest?.stop())

  it('gets no socket, binds no port and reaches no port of the host', async () => {
    const attempts = await startAttempts(pod, 'denied')
    const attack = async () => ({
      sockets: await attempts('sockets'),
      taken: await attempts('bind', ...PORTS),
      dialled: await attempts('dial', ...PORTS),
    })
    const { result } = await underAttack('vsock ports wanted', guestTarget(guest), attack, () => 0)
    const refused = PORTS.map((port) => `${port} EPERM\n`).join('')
    expect(result).toEqual({ sockets: DENIED_SOCKETS, taken: refused, dialled: refused })
    await pod.remove('denied')
  })

  it('gets them where the host allows it, except the port of the API', async () => {
    const attempts = await startAttempts(pod, 'allowed', { spec: { Annotations: VSOCK_ALLOWED } })
    const made = [
      'socket OK',
      'socket-with-upper-bits OK',
      'socket-i386 OK',
      'socketcall-i386 OK',
      'io_uring OK',
    ]
    expect((await attempts('sockets')).split('\n')).toEqual(expect.arrayContaining(made))
    expect(await attempts('bind', ...PORTS)).toBe('1024 EADDRINUSE\n1025 OK\n1026 OK\n1027 OK\n')
    await pod.remove('allowed')
  })

  it('gets io_uring, and through it a socket, when its own profile permits it by name', async () => {
    const attempts = await startAttempts(pod, 'permitted', { linux: { Seccomp: WITH_IO_URING } })
    const lines = (await attempts('sockets')).split('\n')
    expect(lines).toEqual(expect.arrayContaining(['socket EPERM', 'socketcall-i386 EPERM', 'io_uring OK']))
    await pod.remove('permitted')
  })

  it('cannot take the port of an agent that it has killed, even where it may make sockets', async () => {
    const attack = () => portAfterKill(pod)
    const { result } = await underAttack('agent killed, port wanted', guestTarget(guest), attack, () => 0)
    expect(result).toBe('EADDRINUSE\n')
  })
})
