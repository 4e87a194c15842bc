import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { tool } from '../../../src/build/tool.ts'
import { chooseLink } from '../../../src/host/qemu/vsock/choose-link.ts'
import { makeArchive } from '../../../src/image/archives/agent-archive.ts'
import { ensureImage, type GuestImage } from '../../../src/image/ensure-image.ts'
import { ensureKernel } from '../../../src/image/kernel/kernel.ts'
import type { GuestParts } from '../../../src/microvm/run/guest-spec.ts'
import { KATA_SYSTEMD } from '../../fixtures/kata-command-line.ts'
import { bind } from '../../support/containers/container-requests.ts'
import type { Pod } from '../../support/containers/pod.ts'
import { portAfterKill } from '../../support/hostile/port-after-kill.ts'
import { noPolicyAddon } from '../../support/os/policy-addon.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { cannotBoot, progress, type TestGuestOptions } from '../../support/vm/boot-guest.ts'
import { expectContainerLife, expectToOutliveAgent } from '../../support/vm/container-life.ts'
import { ensureDebianRoot } from '../../support/vm/debian-root.ts'
import { bootPod, GUEST_PROC } from '../../support/vm/guest-pod.ts'
import { makeForeignRoot, writeForeignImage } from './foreign-image.ts'

const SYSTEMD = ['rw', 'init=/lib/systemd/systemd']

/** The tests need neither login prompts nor the root's web server. */
const NO_OTHER_SERVICES = ['systemd.mask=getty.target', 'systemd.mask=nginx.service']

const GUEST_ETC = bind('/etc', '/guest/etc')

const skipped = cannotBoot() !== undefined || (await noPolicyAddon()) !== undefined

describe.skipIf(skipped)('the archive of npm run dist in a plain Debian root', () => {
  let folder: string
  let root: string
  let disk: string
  let image: GuestImage
  /** Under systemd the agent leaves the network unconfigured, so only vsock reaches it. */
  let hasVsock: boolean

  beforeAll(async () => {
    folder = temporaryFolder()
    root = join(folder, 'root')
    disk = join(folder, 'root.ext4')
    const link = await chooseLink({ override: process.env.MICROVM_VSOCK, progress })
    hasVsock = link.backend.kind !== 'user-network'
    image = await ensureImage({ kernel: 'bookworm', progress })
    const kernel = await ensureKernel('bookworm', progress)
    const archive = await makeArchive(folder, progress)
    await makeForeignRoot(root, { base: await ensureDebianRoot(progress), archive, kernel })
    await writeForeignImage(disk, root)
  })

  /** Boots without an initrd: the driver of this disk is built into the kernel. */
  const mountedByKernel = (): GuestParts['boot'] => ({
    kernel: image.kernel,
    initrd: undefined,
    root: { path: disk, type: 'ext4', interface: 'nvme' },
  })

  const behindStageOne = (): GuestParts['boot'] => ({
    kernel: image.kernel,
    initrd: image.initrd,
    root: { path: disk, type: 'ext4' },
  })

  it('holds the files it lists', async () => {
    const list = 'usr/share/doc/microvm-agent/files.sha256'
    const checked = await tool('sha256sum', ['--check', list], { cwd: root, debianPackage: 'coreutils' })
    expect(checked).toContain('usr/lib/microvm-agent/vminit: OK\n')
    expect(checked).toContain('usr/lib/microvm-agent/policy.node: OK\n')
    expect(checked).toContain('usr/lib/systemd/system/microvm-agent.service: OK\n')
    expect(checked).toContain('usr/lib/systemd/system/kata-containers.target: OK\n')
  })

  it('runs a container as /sbin/init on a kernel that mounts the root by itself, also when the agent dies', async () => {
    const console = await inGuest({ boot: mountedByKernel() }, async (pod) => {
      expect(await whatRuns(pod)).toEqual({ init: 'init', ...EXPECTED })
      await expectToOutliveAgent(pod)
    })
    expect(console).toContain('"step":"mounts"')
    expect(console).toContain('vminit: the agent was killed by signal 9: restart 1 in')
    expect(console).toMatch(/"runtime has known break-outs","level":"WARN".*CVE-2025-31133 CVE-2025/)
  })

  it('runs a container as /sbin/init behind the stage-one initrd, and a shell on the console', async () => {
    const append = ['agent.debug_console', 'agent.debug_console_vport=0']
    const console = await inGuest({ boot: behindStageOne(), append }, async (pod) => {
      expect(await whatRuns(pod)).toEqual({ init: 'init', ...EXPECTED })
      expect(await pod.output('shells', SHELLS, { mounts: [GUEST_PROC] })).toMatch(
        /^\/bin\/bash -i [1-9]\d*\n$/,
      )
    })
    expect(console).toContain('"step":"mounts"')
    expect(console).toMatch(/"debug console opened".*"device":"\/dev\/console","shell":"\/bin\/bash"/)
    expect(console).toMatch(/"debug console closed".*"reason":"the agent stops"/)
  })

  it('runs a container as a service of systemd, under the target that Kata names', async (context) => {
    context.skip(!hasVsock, 'there is no vsock here')
    const append = [...SYSTEMD, ...KATA_SYSTEMD]
    const console = await inGuest({ boot: mountedByKernel(), append }, async (pod) => {
      expect(await whatRuns(pod)).toEqual({ init: 'systemd', ...EXPECTED })
      await expectContainerLife(pod)
      await expectToOutliveAgent(pod)
      expect(await memoryProtection(pod)).toEqual(PROTECTED)
      expect(await portAfterKill(pod)).toBe('EADDRINUSE\n')
    })
    expect(console).toContain('boot left to the system that started the agent')
  })

  it('removes its containers when systemd powers the guest off', async (context) => {
    context.skip(!hasVsock, 'there is no vsock here')
    const { guest, pod } = await bootPod({
      boot: mountedByKernel(),
      append: [...SYSTEMD, ...NO_OTHER_SERVICES],
    })
    try {
      const init = await pod.run('running', ['sh', '-c', 'trap "" TERM; echo ready; sleep 1000'])
      await init.readUntil('ready')
      const waiting = init.wait()
      // A hook runs outside the container, where PID 1 is the guest's.
      const hook = { Path: '/usr/bin/systemctl', Args: ['systemctl', '--no-block', 'poweroff'] }
      await pod.create('caller', ['true'], { spec: { Hooks: { CreateRuntime: [hook] } } }).catch(() => {})
      expect(await waiting).toBe(137)
      guest.guest.connection.close()
      expect(await guest.guest.vm.exited).toEqual({ code: 0, signal: undefined })
      expect(guest.consoleText()).toMatch(/"stopping".*"reason":"signal"/)
    } finally {
      await guest.stop()
    }
  })
})

/** Prints the command of each bash and the number of its terminal, 0 for none. */
const SHELLS = `for folder in /guest/proc/[0-9]*; do
  [ "$(cat $folder/comm)" = bash ] && tr '\\0' ' ' < $folder/cmdline && cut -d ' ' -f 7 $folder/stat
done
true`

const EXPECTED = {
  release: expect.stringMatching(/^12\./),
  agent: [
    '/usr/lib/microvm-agent/node --max-semi-space-size=1 --max-old-space-size=192 --disable-sigusr1',
    '/usr/lib/microvm-agent/agent.cjs',
  ].join(' '),
}

/** Boots, runs `use`, destroys the sandbox, and waits for the power-off. Returns the console. */
async function inGuest(options: TestGuestOptions, use: (pod: Pod) => Promise<void>): Promise<string> {
  const { guest, pod } = await bootPod(options)
  try {
    await use(pod)
    await pod.agent.destroySandbox({})
    // With an open connection the agent would wait some seconds for calls in progress.
    guest.guest.connection.close()
    expect(await guest.guest.vm.exited).toEqual({ code: 0, signal: undefined })
    expect(guest.consoleText()).toContain('reboot: Power down')
    return guest.consoleText()
  } finally {
    await guest.stop()
  }
}

async function whatRuns(pod: Pod): Promise<Record<'init' | 'release' | 'agent', string>> {
  const script = [
    'cat /guest/proc/1/comm /guest/etc/debian_version',
    'for folder in /guest/proc/[0-9]*; do',
    '  if [ "$(cat $folder/comm)" = kata-agent ]; then tr "\\0" " " < $folder/cmdline; fi',
    'done',
  ]
  const output = await pod.output('look', script.join('\n'), { mounts: [GUEST_PROC, GUEST_ETC] })
  const [init = '', release = '', agent = ''] = output.split('\n')
  return { init, release, agent: agent.slice(0, agent.indexOf(' --channel')) }
}

/** The settings that keep the service in memory, and the limit of all containers. */
const PROTECTED = {
  'memory.min': '67108864',
  'cpu.weight': '1000',
  'memory.max': expect.stringMatching(/^\d+$/),
  vminit: expect.stringMatching(/^[1-9]\d* kB$/),
  'kata-agent': expect.stringMatching(/^[1-9]\d{3,} kB$/),
}

async function memoryProtection(pod: Pod): Promise<Record<string, string>> {
  const script = [
    'cd /guest/cgroup',
    'for file in microvm-agent.service/memory.min microvm-agent.service/cpu.weight containers-*/memory.max; do',
    '  echo "$(basename $file)=$(cat $file)"',
    'done',
    'for folder in /guest/proc/[0-9]*; do',
    '  name=$(cat $folder/comm)',
    // The agent locks its program a second after its boot.
    '  for _ in $(seq 300); do [ $name = kata-agent ] && grep -q "^VmLck:\\s*0 kB" $folder/status && sleep 0.1; done',
    '  case $name in vminit|kata-agent) echo "$name=$(sed -n "s/^VmLck:\\s*//p" $folder/status)" ;; esac',
    'done',
  ]
  const mounts = [GUEST_PROC, bind('/sys/fs/cgroup', '/guest/cgroup')]
  const output = await pod.output('protected', script.join('\n'), { mounts })
  return Object.fromEntries(
    output
      .trim()
      .split('\n')
      .map((line) => line.split('=')),
  )
}
