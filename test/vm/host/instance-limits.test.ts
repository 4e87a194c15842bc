import { join } from 'node:path'
import { build } from 'esbuild'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SIGKILL } from '../../../src/base/signals.ts'
import { buildAddon, buildHolder } from '../../../src/build/native.ts'
import { specKey } from '../../../src/host/spec/spec-key.ts'
import { writeExt4 } from '../../../src/image/formats/file-systems.ts'
import { fileFrom } from '../../../src/image/formats/tree.ts'
import { bind, type ContainerOptions } from '../../support/containers/container-requests.ts'
import { type Pod, podOf } from '../../support/containers/pod.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { bootTestGuest, cannotBoot, type TestGuest } from '../../support/vm/boot-guest.ts'
import { ROOT } from '../../support/vm/guest-pod.ts'

const HOST = '/run/kata-containers/sandbox/host'
/** With that of the guest, whose cgroups a process of another cgroup namespace may not join. */
const NAMESPACES = [
  ...['mount', 'ipc', 'uts', 'pid'].map((Type) => ({ Type })),
  { Type: 'cgroup', Path: '/proc/1/ns/cgroup' },
]
const PROC = { type: 'proc', source: 'proc', options: ['nosuid', 'noexec', 'nodev'] }
const NODE = '/usr/lib/microvm-agent/node'

describe.skipIf(cannotBoot() !== undefined)('the limits of an instance on cgroup v2', () => {
  let guest: TestGuest
  let pod: Pod

  beforeAll(async () => {
    const folder = temporaryFolder()
    const [program, disk] = [join(folder, 'limited.mjs'), join(folder, 'host.ext4')]
    await build({
      entryPoints: [join(import.meta.dirname, 'limited-processes.ts')],
      outfile: program,
      ...{ bundle: true, platform: 'node', format: 'esm', logLevel: 'warning' },
    })
    const files = [
      fileFrom('limited.mjs', program),
      fileFrom('addon.node', await buildAddon()),
      fileFrom('holder', await buildHolder(), 0o755),
    ]
    await writeExt4(disk, files, { freeBytes: 2 ** 20, label: 'host' })
    const backend = specKey('host-file')
    guest = await bootTestGuest({
      extra: {
        devices: { [specKey('host')]: { kind: 'disk', slot: 6, serial: 'host', backend } },
        backends: { [backend]: { kind: 'file', path: disk, access: 'read-only' } },
      },
    })
    const storage = { driver: 'blk', fstype: 'ext4' }
    const storages = [
      { ...storage, options: [], source: guest.rootSource, mountPoint: ROOT },
      { ...storage, options: ['ro'], source: '06', mountPoint: HOST },
    ]
    await guest.agent.createSandbox({ sandboxId: 'pod', storages })
    pod = podOf(guest.agent, ROOT)
  })
  afterAll(() => guest?.stop())

  /** Runs as root of the guest, but for what `more` changes. */
  async function limited(id: string, more: ContainerOptions = {}) {
    const script = `chroot /guest ${NODE} ${HOST}/limited.mjs ${HOST}/holder /run/${id}`
    const { mounts = [], ...others } = more
    const output = await pod.output(id, script, {
      // The holder wants that of its own PID namespace.
      mounts: [bind('/', '/guest'), { ...PROC, destination: '/guest/proc' }, ...mounts],
      linux: { Namespaces: NAMESPACES },
      capabilities: ['CAP_SYS_ADMIN', 'CAP_SYS_CHROOT', 'CAP_KILL', 'CAP_DAC_OVERRIDE'],
      ...others,
    })
    return JSON.parse(output)
  }

  it('hold for its processes, and are gone after them', async () => {
    expect(await limited('host')).toEqual({
      controllers: ['cpu', 'memory', 'pids'],
      refused: '',
      limits: {
        'memory.max': `${160 * 2 ** 20}`,
        'memory.swap.max': '0',
        'cpu.max': '80000 100000',
        'pids.max': '40',
      },
      isInside: [true, true],
      ends: { hog: { signal: SIGKILL }, bomb: { code: 7 } },
      events: {
        memory: expect.stringContaining('oom_kill 1\n'),
        tasks: expect.stringMatching(/^max [1-9]/),
        cpu: expect.stringMatching(/^nr_throttled [1-9]/m),
      },
      left: [],
    })
  })

  it('are refused where no cgroup is writable', async () => {
    const cgroup = { ...bind('/sys/fs/cgroup', '/guest/sys/fs/cgroup'), options: ['rbind', 'ro'] }
    const text = 'limits.memory_mib: this host has no writable cgroup with the controller memory'
    expect(await limited('read-only', { mounts: [cgroup] })).toEqual({
      controllers: [],
      refused: `AgentError: ${text}`,
    })
  })
})
