import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type AgentPod, startPod } from '../../support/host/agent-pod.ts'

// The words of docs/reference/callers-words.md that reach a real runtime.
describe('a specification in the words of runtime-rs and agent-ctl', () => {
  let pod: AgentPod
  beforeAll(async () => {
    pod = await startPod()
  })
  afterAll(() => pod.stop())

  /** CAP_KILL (5), CAP_NET_RAW (13) and CAP_SYS_CHROOT (18). */
  const CAPABILITIES = ['KILL', 'cap_sys_chroot', '"NET_RAW"']
  const MASK = '0000000000042020'
  const LOOK = "sed -n 's/^CapBnd:\\t//p' /proc/self/status"

  it('names capabilities without CAP_, in quotes and in small letters', async () => {
    expect(await pod.output('capable', LOOK, { capabilities: CAPABILITIES })).toBe(`${MASK}\n`)
  })

  it('names the capabilities of an added process in the same way', async () => {
    await pod.run('holder', ['sleep', '1000'])
    const added = await pod.add('holder', 'e1', ['sh', '-c', LOOK], { capabilities: CAPABILITIES })
    expect((await added.readAll()).toString()).toBe(`${MASK}\n`)
    await pod.remove('holder')
  })

  it('names the mount and network namespaces mnt and net', async () => {
    const Namespaces = ['pid', 'net', 'ipc', 'uts', 'mnt'].map((Type) => ({ Type }))
    const script = 'tail -n +3 /proc/net/dev | sed "s/:.*//"'
    expect((await pod.output('apart', script, { linux: { Namespaces } })).trim()).toBe('lo')
  })

  it.each(['1.0.2-dev', '1.1.0-rc.1-test', '1.2.0'])('names the version %s', async (Version) => {
    expect(await pod.output('version', 'echo run', { spec: { Version } })).toBe('run\n')
  })

  it('names what this machine lacks: a profile, a label, huge pages and flags', async () => {
    const process = {
      ApparmorProfile: 'cri-containerd.apparmor.d',
      SelinuxLabel: 'system_u:system_r:container_t:s0',
    }
    const HugepageLimits = ['64KB', '16GB'].map((Pagesize) => ({ Pagesize, Limit: 0n }))
    const linux = {
      MountLabel: 'system_u:object_r:container_file_t:s0',
      Resources: { HugepageLimits },
      Seccomp: {
        DefaultAction: 'SCMP_ACT_ALLOW',
        Flags: ['SECCOMP_FILTER_FLAG_LOG', 'SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV'],
      },
    }
    await pod.run('lacking', ['sleep', '1000'], { process, linux })
    for (const field of ['process.apparmorProfile', 'linux.mountLabel', 'linux.seccomp.flags']) {
      await pod.started.logged({ containerId: 'lacking', field })
      const lines = pod.started.log.filter((line) => line.containerId === 'lacking' && line.field === field)
      expect(lines).toMatchObject([{ level: 'WARN', msg: 'specification not followed' }])
    }
    const added = await pod.add('lacking', 'e1', ['echo', 'added'], { process })
    expect((await added.readAll()).toString()).toBe('added\n')
    await pod.agent.updateContainer({ containerId: 'lacking', resources: { HugepageLimits } })
    await pod.remove('lacking')
  })

  it('names architectures that the runtime does not know, and variables without a name', async () => {
    const Architectures = ['SCMP_ARCH_X86_64', 'SCMP_ARCH_X86', 'SCMP_ARCH_X32', 'SCMP_ARCH_VAX']
    const linux = { Seccomp: { DefaultAction: 'SCMP_ACT_ALLOW', Architectures } }
    expect(await pod.output('vax', 'echo $A', { linux, env: ['=x', 'A=b'] })).toBe('b\n')
  })
})
