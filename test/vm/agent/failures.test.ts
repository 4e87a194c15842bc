import { readFileSync } from 'node:fs'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { messageOf } from '../../../src/base/errors.ts'
import type { Pod } from '../../support/containers/pod.ts'
import { ctl } from '../../support/ctl/run-ctl.ts'
import { parseLogLine } from '../../support/log-lines.ts'
import { forwardToGuest } from '../../support/rpc/forward.ts'
import { cannotBoot, type TestGuest } from '../../support/vm/boot-guest.ts'
import { dialGuest } from '../../support/vm/dial-guest.ts'
import { bootPod, consoleLine, ROOT } from '../../support/vm/guest-pod.ts'

const PAGE = new URL('../../../docs/debug.md', import.meta.url)
const page = readFileSync(PAGE, 'utf8')

/** Fields that vary, or that are the same in all lines; the page leaves them out. */
const LEFT_OUT = ['ts', 'version', 'subsystem', 'pid', 'name', 'source', 'ms', 'stepMs', 'peer', 'framing']

function shown(line: string): string {
  const fields = Object.entries(parseLogLine(line)).filter(([name]) => !LEFT_OUT.includes(name))
  return JSON.stringify(Object.fromEntries(fields))
}

/** As the page has it within a sentence. */
function messageIn(line: string): string {
  return `\`${parseLogLine(line).msg}\``
}

/** The first lines of `agent-ctl doctor`, up to the report itself. */
async function diagnosis(guest: TestGuest): Promise<string> {
  const way = await forwardToGuest(guest)
  try {
    const { stderr, stdout } = await ctl(['-a', `unix://${way.path}`, 'doctor'])
    expect(stderr).toBe('')
    return stdout.slice(0, stdout.indexOf('\n## '))
  } finally {
    way.close()
  }
}

async function errorOf(promise: Promise<unknown>): Promise<string> {
  return promise.then(
    () => 'no error',
    (error: unknown) => messageOf(error),
  )
}

describe.skipIf(cannotBoot() !== undefined)('docs/debug.md shows what a guest says', () => {
  let guest: TestGuest
  let pod: Pod
  beforeAll(async () => {
    const console = ['agent.debug_console', 'agent.debug_console_vport=1026']
    const append = ['module_blacklist=overlay,qemu_fw_cfg', 'agent.hotplug_timeout=1', ...console]
    ;({ guest, pod } = await bootPod({ append, vsock: 'vhost-user' }))
  })
  afterAll(() => guest?.stop())

  it('of an option that the kernel lacks', async () => {
    const [storage, mountPoint] = ['overlayfs', '/run/kata-containers/layers/rootfs']
    const options = ['lowerdir=/run', 'upperdir=/run/upper', 'workdir=/run/work']
    const overlay = { driver: storage, source: 'overlay', fstype: 'overlay', options, mountPoint }
    expect(page).toContain(await errorOf(pod.create('layers', ['true'], { storages: [overlay] })))
    expect(page).toContain(shown(await consoleLine(guest, /"no VM metadata"/)))
  })

  it('of a storage that never comes', async () => {
    const disk = {
      driver: 'blk',
      source: '02/0f',
      fstype: 'ext4',
      options: [],
      mountPoint: '/run/kata-containers/data',
    }
    const error = await errorOf(pod.create('data', ['true'], { storages: [disk] }))
    // The content of sysfs differs from guest to guest.
    expect(page).toContain(error.slice(0, error.indexOf(';')))
  })

  it('of a port on which the host does not listen', async () => {
    const error = await errorOf(pod.create('port', ['true'], { ports: { stdoutPort: 5999 } }))
    expect(page).toContain(error.replace(/no listener: .*/, 'no listener: '))
  })

  it('of a debug console without a shell', async () => {
    expect(page).toContain((await text(await dialGuest(guest, 1026))).trimEnd())
    expect(page).toContain(messageIn(await consoleLine(guest, /"debug console without a shell"/)))
  })

  it('of a hook that cannot reach its registry', async () => {
    const script = 'echo no route to registry.example >&2; exit 3'
    const hook = { Path: `${ROOT}/bin/busybox`, Args: ['sh', '-c', script] }
    expect(page).toContain(
      await errorOf(pod.create('hook', ['true'], { spec: { Hooks: { CreateRuntime: [hook] } } })),
    )
    const slow = { ...hook, Args: ['sleep', '1000'], Timeout: 1n }
    const late = await errorOf(pod.create('hook', ['true'], { spec: { Hooks: { CreateRuntime: [slow] } } }))
    expect(page).toContain(`\`${/hook ran past .* of [\d.]+s/.exec(late)?.[0]}\``)
  })

  it('of a container that takes more memory than it may', async () => {
    const script = 'x=aaaaaaaa; while true; do x=$x$x; done'
    const linux = { Resources: { Memory: { Limit: 16n << 20n } } }
    const init = await pod.run('hungry', ['sh', '-c', script], { linux })
    expect(await init.wait()).toBe(137)
    expect(page).toContain(shown(await consoleLine(guest, /"container out of memory"/)))
    expect(await guest.agent.getOOMEvent({})).toMatchObject({ containerId: 'hungry' })
    await pod.remove('hungry')
  })

  it('and agent-ctl doctor names the causes', async () => {
    const hook = { Path: `${ROOT}/bin/busybox`, Args: ['sleep', '1000'], Timeout: 12n }
    const hanging = errorOf(pod.create('hanging', ['true'], { spec: { Hooks: { CreateRuntime: [hook] } } }))
    await consoleLine(guest, /"rpc in progress".*"hanging"/)
    await pod.agent.setGuestDateTime({ Sec: BigInt(Math.floor(Date.now() / 1000) + 600) })
    const said = await diagnosis(guest)
    expect(said).toMatch(/^! the guest's clock is (9m5\ds|10m00s) ahead of this machine's: /m)
    expect(said).toMatch(
      /^! CreateContainer of hanging hangs for \d+s, for \d+m?s of it in step runtime runc create$/m,
    )
    expect(said).toMatch(/^! hungry was killed because memory ran out: signal 9, out of memory, /m)
    expect(said).toMatch(/^! the kernel lacks an option: .*CreateContainer of layers .*has no overlay: /m)
    expect(said).toMatch(/^! a storage or device never came: .*CreateContainer of data .*PCI path 02\/0f: /m)
    expect(said).toMatch(/^! the host does not listen on a port: .*CreateContainer of port .*port 5999 /m)
    expect(said).toMatch(/^! the debug console has no shell: .*\/bin\/sh: not found/m)
    expect(said).toMatch(
      /^! a hook failed: .*CreateContainer of hook .*exit status 3 \(hook #0: createRuntime /m,
    )
    expect(said).toMatch(
      /^! a hook failed: .*CreateContainer of hook .*ran past specified timeout of 1\.0s /m,
    )
    expect(said).not.toContain('registry.example')
    expect(said).toMatch(/^- the kernel lacks fw_cfg: /m)
    expect(await hanging).toContain('hook ran past specified timeout')
  })
})

describe.skipIf(cannotBoot() !== undefined)('docs/debug.md shows what a guest without limits says', () => {
  let guest: TestGuest
  let pod: Pod
  beforeAll(async () => {
    const append = ['systemd.unified_cgroup_hierarchy=0', 'cgroup_disable=memory']
    ;({ guest, pod } = await bootPod({ append }))
  })
  afterAll(() => guest?.stop())

  it('of the wrong mode of cgroups', async () => {
    const linux = { Resources: { Memory: { Limit: 16n << 20n } } }
    const error = await errorOf(pod.create('limited', ['true'], { linux }))
    expect(page).toContain(
      shown(await consoleLine(guest, /"cgroup v1 requested, but it lacks controllers: using v2"/)),
    )
    expect(page).toContain(`\`${/[a-z]+\.max(?=: no such file)/.exec(error)?.[0]}\``)
    const said = await diagnosis(guest)
    expect(said).toMatch(/^! limits of containers are refused: .*cgroup v2 has no controller for memory\)$/m)
    expect(said).toMatch(
      /^! a limit has no controller: .*CreateContainer of limited .*memory\.max: no such file/m,
    )
  })

  it('of an agent that was killed', async () => {
    const script = 'kill -KILL $(busybox pidof kata-agent)'
    const Path = `${ROOT}/bin/busybox`
    const hook = { Path, Args: ['sh', '-c', script], Env: [`PATH=${ROOT}/bin`] }
    await pod.run('killer', ['true'], { spec: { Hooks: { Poststart: [hook] } } })
    expect(page).toContain(messageIn(await consoleLine(guest, /"agent restarted: sandbox restored"/)))
    expect(await diagnosis(guest)).toMatch(/^! the agent died and was restarted once, the last time /m)
  })
})
