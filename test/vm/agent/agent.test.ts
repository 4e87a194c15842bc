import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { GUEST_LIMITS } from '../../../src/agent/boot/guest-limits.ts'
import { bind } from '../../support/containers/container-requests.ts'
import type { Pod } from '../../support/containers/pod.ts'
import { rulesOf, SAMPLE_RULES } from '../../support/host/iptables-rules.ts'
import { dialFromContainer } from '../../support/programs/vsock-dial.ts'
import { cannotBoot, type TestGuest } from '../../support/vm/boot-guest.ts'
import { bootPod, consoleLine, GUEST_PROC, ROOT } from '../../support/vm/guest-pod.ts'

async function inGroups<T>(count: number, run: (number: number) => Promise<T>): Promise<readonly T[]> {
  const results: T[] = []
  for (let first = 0; first < count; first += 4) {
    const group = Array.from({ length: Math.min(4, count - first) }, (_, index) => run(first + index))
    results.push(...(await Promise.all(group)))
  }
  return results
}

describe.skipIf(cannotBoot() !== undefined)('the agent in a guest', () => {
  let guest: TestGuest
  let pod: Pod
  beforeAll(async () => {
    const append = ['agent.log=debug', 'agent.lgo=debug']
    // The loopback module is loaded, so only the agent can refuse a connection through it.
    const kernelModules = [{ name: 'vsock_loopback' }]
    ;({ guest, pod } = await bootPod({ cpus: 2, append }, { kernelModules }))
  })
  afterAll(() => guest?.stop())

  it('listens, boots, and only then creates a sandbox', async () => {
    await consoleLine(guest, /"rpc".*CreateSandbox.*"OK"/)
    const steps = [/"listening"/, /"booted"/, /"rpc".*CreateSandbox.*"OK"/]
    const lines = guest.guest.vm.console.lines
    const places = steps.map((step) => lines.findIndex((line) => step.test(line)))
    expect(places).not.toContain(-1)
    expect(places).toEqual(places.toSorted((one, other) => one - other))
  })

  it('warns of an unknown word for it on the kernel command line', () => {
    const warning = /"settings without effect".*"WARN".*"settings":"agent\.lgo","because":"unknown"/
    expect(guest.consoleText()).toMatch(warning)
  })

  it('answers Check and Version and manages the guest', async () => {
    expect((await guest.health.check({})).status).toBe(1)
    expect((await guest.health.version({})).grpcVersion).toBe('0.0.1')
    const details = await guest.agent.getGuestDetails({ memBlockSize: true })
    expect(details.agentDetails).toMatchObject({ initDaemon: true, supportsSeccomp: true })
    expect(details.memBlockSizeBytes).toBeGreaterThan(0n)
  })

  it('has high limits of the kernel, and gives a container half of its processes', async () => {
    const files = [...GUEST_LIMITS.keys()].map((name) => `/guest/proc/sys/${name}`).join(' ')
    const shown = await pod.output('kernel-limits', `cat ${files} /guest/proc/sys/kernel/threads-max`, {
      mounts: [GUEST_PROC],
    })
    const numbers = shown.trim().split('\n').map(BigInt)
    expect(numbers.slice(0, -1)).toEqual([...GUEST_LIMITS.values()])
    await pod.run('share', ['sleep', '1000'])
    const { cgroupStats } = await guest.agent.statsContainer({ containerId: 'share' })
    expect(cgroupStats?.pidsStats?.limit).toBe((numbers.at(-1) ?? 0n) / 2n)
    await pod.remove('share')
  })

  it('passes its oom_score_adj on to nothing, and its limit of open files to containers alone', async () => {
    const look = 'ulimit -Hn; cat /proc/self/oom_score_adj'
    const agentLimits = await pod.output(
      'agent-limits',
      `for p in /guest/proc/[0-9]*; do
         if grep -q "agent[.]cjs" $p/cmdline; then cat $p/oom_score_adj; grep 'Max open files' $p/limits; fi
       done; cat /guest/proc/sys/fs/nr_open`,
      { mounts: [GUEST_PROC] },
    )
    const [, nrOpen] = /(\d+)\n$/.exec(agentLimits) ?? []
    expect(agentLimits).toMatch(new RegExp(`^-997\nMax open files +${nrOpen} +${nrOpen} `))
    expect(nrOpen).toBe(String(2 ** 30))

    const seen = `${ROOT}/tmp/hook-limits`
    // A hook runs as a child of the runtime, which is a helper program of the agent.
    const hook = { Path: `${ROOT}/bin/busybox`, Args: ['sh', '-c', `{ ${look}; } > ${seen}`] }
    const script = `ulimit -Sn; ${look}; read line; cat /tmp/hook-limits`
    const init = await pod.run('limits', ['sh', '-c', script], { spec: { Hooks: { CreateRuntime: [hook] } } })
    expect(await init.readUntil('\n0\n')).toBe(`${nrOpen}\n${nrOpen}\n0\n`)
    const added = await pod.add('limits', 'e', ['sh', '-c', look])
    expect((await added.readAll()).toString()).toBe(`${nrOpen}\n0\n`)
    await init.write('\n')
    expect((await init.readAll()).toString()).toBe('524288\n0\n')
    await pod.remove('limits')
    const process = { Rlimits: [{ Type: 'RLIMIT_NOFILE', Soft: 1024n, Hard: 2n ** 63n }] }
    expect(await pod.output('endless', 'ulimit -Sn; ulimit -Hn', { process })).toBe(`1024\n${nrOpen}\n`)
  })

  it('gives added processes their soft limit of open files before their program runs', async () => {
    const process = { Rlimits: [{ Type: 'RLIMIT_NOFILE', Soft: 77n, Hard: 99n }] }
    await pod.run('files', ['sleep', '1000'], { process })
    // Without the hook of the kernel, a fifth of the processes begin with 99.
    const seen = await inGroups(24, async (number) => {
      const added = await pod.add('files', `e${number}`, ['sh', '-c', 'ulimit -Sn; ulimit -Hn'], { process })
      const limits = (await added.readAll()).toString()
      expect(await added.wait()).toBe(0)
      return limits
    })
    expect(new Set(seen)).toEqual(new Set(['77\n99\n']))
    await pod.remove('files')
  })

  it('lets containers open the nodes of their specification, and privileged ones every device', async () => {
    const sys = { destination: '/sys', source: 'sysfs', type: 'sysfs', options: ['ro'] }
    const numbers = await pod.output('numbers', 'cat /sys/block/vda/dev', { mounts: [sys] })
    const [Major = 0n, Minor = 0n] = numbers.trim().split(':').map(BigInt)
    const read = (node: string) => `dd if=${node} bs=1 count=1 of=/dev/null 2>&1 | tail -n 1`
    const READ = '1+0 records out'
    const node = { Path: '/dev/node', Type: 'b', Major, Minor }
    // Both shims send no rules for devices.
    expect(await pod.output('given', read('/dev/node'), { linux: { Devices: [node] } })).toContain(READ)
    const make = `mknod /dev/made b ${Major} ${Minor}; ${read('/dev/made')}`
    const plain = { capabilities: ['CAP_MKNOD', 'CAP_SYS_ADMIN'] }
    expect(await pod.output('plain', make, plain)).toContain('Operation not permitted')
    const privileged = {
      capabilities: ['CAP_MKNOD', 'CAP_SYS_ADMIN', 'CAP_SYS_RAWIO'],
      mounts: [bind('/dev', '/guest/dev')],
    }
    expect(await pod.output('privileged', `${make}; ${read('/guest/dev/vda')}`, privileged)).toBe(
      `${READ}\n${READ}\n`,
    )
    const masked = { ...privileged, linux: { MaskedPaths: ['/proc/kcore'] } }
    expect(await pod.output('masked', make, masked)).toContain('Operation not permitted')
  })

  it('applies limits of huge pages that it has, and drops others as it drops an AppArmor profile', async () => {
    const cgroup = { source: 'cgroup', destination: '/sys/fs/cgroup', type: 'cgroup', options: ['ro'] }
    const HugepageLimits = ['64KB', '2MB'].map((Pagesize) => ({ Pagesize, Limit: 4n << 20n }))
    const limited = await pod.run(
      'limited',
      ['sh', '-c', 'cd /sys/fs/cgroup; cat hugetlb.*.max; echo end; read line'],
      {
        mounts: [cgroup],
        process: { ApparmorProfile: 'cri-containerd.apparmor.d' },
        linux: { Resources: { HugepageLimits } },
      },
    )
    expect(await limited.readUntil('end\n')).toContain(`${4 << 20}\n`)
    await consoleLine(guest, /"specification not followed".*"process.apparmorProfile"/)
    await consoleLine(guest, /"specification not followed".*"linux.resources.hugepageLimits","value":"64KB"/)
    await pod.agent.updateContainer({ containerId: 'limited', resources: { HugepageLimits } })
    await pod.remove('limited')
  })

  it('adds processes with the user, groups and limits that they name', async () => {
    await pod.run('kin', ['sleep', '1000'])
    const process = {
      User: { UID: 1000, GID: 1000, AdditionalGids: [2000] },
      Capabilities: undefined,
      // The shell counts in blocks of 512 bytes.
      Rlimits: [{ Type: 'RLIMIT_CORE', Soft: 7n * 512n, Hard: 9n * 512n }],
      Cwd: '/tmp',
      Env: ['PATH=/bin', 'A=b'],
      NoNewPrivileges: true,
      Terminal: true,
      ConsoleSize: { Height: 11, Width: 22 },
    }
    const look = `id -u; id -G; pwd; echo $A $HOME; umask; stty size; ulimit -c
      sed -n 's/^\\(CapBnd\\|NoNewPrivs\\):\t//p' /proc/self/status`
    const added = await pod.add('kin', 'e', ['sh', '-c', look], { process })
    const seen = ['1000', '1000 2000', '/tmp', 'b /', '0022', '11 22', '7', '0000000000040020', '1', '']
    expect((await added.readAll()).toString().split('\r\n')).toEqual(seen)
    expect(await added.wait()).toBe(0)
    for (const terminal of [false, true]) {
      await expect(pod.add('kin', 'missing', ['/bin/nosuch'], { terminal })).rejects.toMatchObject({
        code: 'INTERNAL',
        message: expect.stringContaining('the file /bin/nosuch was not found'),
      })
    }
    await pod.remove('kin')
  })

  it('gives containers the sandbox’s name and cgroup v2', async () => {
    const cgroup = { source: 'cgroup', destination: '/sys/fs/cgroup', type: 'cgroup', options: ['ro'] }
    const script = 'hostname; cat /proc/self/cgroup; cat /sys/fs/cgroup/cgroup.controllers'
    const [name, path, controllers] = (await pod.output('v2', script, { mounts: [cgroup] })).split('\n')
    expect([name, path]).toEqual(['vm-pod', '0::/'])
    expect(controllers?.split(' ')).toEqual(expect.arrayContaining(['cpu', 'cpuset', 'io', 'memory', 'pids']))
  })

  it('sets net sysctls in the guest, where every container sees them', async () => {
    const folder = '/proc/sys/net'
    const names = ['core/somaxconn', 'ipv4/ip_unprivileged_port_start', 'ipv4/conf/lo/forwarding']
    const look = `cat ${names.map((name) => `${folder}/${name}`).join(' ')}`
    const Sysctl = {
      'net.core.somaxconn': '77',
      'net/ipv4/ip_unprivileged_port_start': '80',
      'net.ipv4.conf.lo.forwarding': '1',
    }
    expect(await pod.output('setter', look, { linux: { Sysctl } })).toBe('77\n80\n1\n')
    expect(await pod.output('other', look)).toBe('77\n80\n1\n')
    const wrong = pod.create('wrong', ['true'], {
      linux: { Sysctl: { 'net.core.somaxconn': '99', 'net.core.nope': '1' } },
    })
    await expect(wrong).rejects.toThrow(`${folder}/core/nope: ENOENT`)
    expect(await pod.output('after', look)).toBe('77\n80\n1\n')
  })

  it('runs on a read-only root', async () => {
    const mounts = [bind('/usr', '/guest/usr'), GUEST_PROC]
    const script = `grep -c ' / / ro' /guest/proc/1/mountinfo
      for name in usr/file usr/lib/microvm-agent/agent.cjs; do echo x > /guest/$name; done; true`
    const init = await pod.run('root', ['sh', '-c', script], { mounts })
    expect((await init.readAll()).toString()).toBe('1\n')
    expect((await init.readAll('stderr')).toString().match(/Read-only file system/g)).toHaveLength(2)
    await pod.remove('root')
  })

  it.each([
    ['IPv4', false],
    ['IPv6', true],
  ])(
    'sets packet filters of %s and gives them back, with the modules that the rules need',
    async (_family, isIpv6) => {
      await guest.agent.setIPTables({ isIpv6, data: Buffer.from(SAMPLE_RULES) })
      const { data } = await guest.agent.getIPTables({ isIpv6 })
      expect(rulesOf(Buffer.from(data).toString())).toEqual(rulesOf(SAMPLE_RULES))
      await guest.agent.setIPTables({ isIpv6, data })
      const again = await guest.agent.getIPTables({ isIpv6 })
      expect(rulesOf(Buffer.from(again.data).toString())).toEqual(rulesOf(SAMPLE_RULES))
    },
  )

  it('leaves packet filters as they are when the tool refuses the new ones', async () => {
    const before = await guest.agent.getIPTables({})
    const rules = Buffer.from(
      '*nat\n-A PREROUTING -j RETURN\nCOMMIT\n*filter\n-A INPUT -j DNAT --to-destination 10.0.0.1\nCOMMIT\n',
    )
    await expect(guest.agent.setIPTables({ data: rules })).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringContaining('RULE_APPEND failed'),
    })
    const after = await guest.agent.getIPTables({})
    expect(rulesOf(Buffer.from(after.data).toString())).toEqual(rulesOf(Buffer.from(before.data).toString()))
  })

  it('closes connections from inside the guest without an answer', async (context) => {
    context.skip(guest.guest.address.kind === 'tcp', 'there is no vsock here')
    const dialling = await dialFromContainer(pod)
    expect(await dialling.readAll('stdout')).toHaveLength(0)
    expect((await dialling.readAll('stderr')).toString()).toBe('connected\nclosed\n')
    expect((await guest.health.check({})).status).toBe(1)
    await pod.remove('dial')
  })
})
