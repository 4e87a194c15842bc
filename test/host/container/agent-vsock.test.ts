import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { ContainerOptions } from '../../support/containers/container-requests.ts'
import { type AgentPod, startPod } from '../../support/host/agent-pod.ts'
import { guestProgram } from '../../support/programs/guest/guest-program.ts'
import { DENIED_SOCKETS } from '../../support/programs/vsock-attempts.ts'

const PRIVILEGED = ['CAP_SYS_ADMIN', 'CAP_NET_ADMIN', 'CAP_SYS_PTRACE', 'CAP_SYS_MODULE']

/** A profile with a rule for the calls that the agent denies; it allows every other call. */
const PROFILE = {
  DefaultAction: 'SCMP_ACT_ALLOW',
  Architectures: ['SCMP_ARCH_X86_64', 'SCMP_ARCH_X86', 'SCMP_ARCH_X32'],
  Syscalls: [
    { Names: ['socket', 'socketcall'], Action: 'SCMP_ACT_ALLOW' },
    { Names: ['mkdir', 'mkdirat'], Action: 'SCMP_ACT_ERRNO' },
  ],
}

// The guest tests cover allowed AF_VSOCK, because this machine's vsock is not under the test's control.
describe.each(['runc', 'crun'])('a container that %s makes', (runtime) => {
  let pod: AgentPod
  beforeAll(async () => {
    pod = await startPod({ runtime })
    writeFileSync(join(pod.root, 'bin/attempts'), await guestProgram('vsock-attempts'), { mode: 0o755 })
  })
  afterAll(() => pod.stop())

  it.each<[string, ContainerOptions]>([
    ['without a profile', {}],
    ['with all rights', { capabilities: PRIVILEGED }],
    ['of a user without rights', { capabilities: [], process: { User: { UID: 1, GID: 1 } } }],
    ['that can gain no rights', { process: { NoNewPrivileges: true } }],
    ['with a profile that allows sockets', { linux: { Seccomp: PROFILE } }],
  ])('%s makes no AF_VSOCK socket, nor does a process added to it', async (_which, options) => {
    const init = await pod.run('c1', ['sh', '-c', 'attempts sockets; read line'], options)
    expect(await init.readUntil('inet-i386 OK\n')).toBe(DENIED_SOCKETS)
    const added = await pod.add('c1', 'e', ['attempts', 'sockets'], options)
    expect((await added.readAll()).toString()).toBe(DENIED_SOCKETS)
    await pod.remove('c1')
  })

  it('gives no vsock socket to a hook that runs in it', async () => {
    const hook = { Path: '/bin/sh', Args: ['sh', '-c', '/bin/attempts sockets > /hook'] }
    const StartContainer = [{ ...hook, Timeout: 10n }]
    const options = { spec: { Hooks: { StartContainer } } }
    expect(await pod.output('hooked', 'cat /hook', options)).toBe(DENIED_SOCKETS)
  })

  it('keeps its own profile in force', async () => {
    const script = 'mkdir /made || grep Seccomp_filters /proc/self/status'
    expect(await pod.output('profiled', script, { linux: { Seccomp: PROFILE } })).toBe(
      'Seccomp_filters:\t2\n',
    )
  })

  it('is refused for an unknown word in the annotation', async () => {
    const spec = { Annotations: { 'microvm.agent.container_vsock': 'yes' } }
    await expect(pod.create('worded', ['true'], { spec })).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: `annotations['microvm.agent.container_vsock']: unknown value "yes", want deny or allow`,
    })
  })
})
