import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { Device } from '../../../src/gen/agent.ts'
import { LinuxResources } from '../../../src/gen/oci.ts'
import { checkContainerId } from '../../../src/handlers/container/create-container.ts'
import type { FakeOs } from '../../support/fakes/fake-os.ts'
import { recordingLog } from '../../support/fakes/recording-log.ts'
import { addPciBus, pciDriverOf, plugPci } from '../../support/handlers/device/pci-bus.ts'
import {
  containerRequest,
  execRequest,
  machine,
  machineWithSandbox,
  remains,
} from '../../support/handlers/machine.ts'

const DISK = { type: 'mmioblk', vmPath: '/dev/vdb', containerPath: '/dev/data' }

async function machineWithDisk() {
  const made = await machineWithSandbox()
  await made.os.files.put('/sys/class/block/vdb/dev', '254:16\n')
  await made.os.files.makeSpecial('/dev/vdb', { kind: 'block', major: 254, minor: 16 })
  return made
}

function requestForCdi(device: string) {
  const { OCI } = containerRequest('c1')
  return containerRequest('c1', {}, { OCI: { ...OCI, Annotations: { 'cdi.k8s.io/plugin': device } } })
}

async function configOf(made: Awaited<ReturnType<typeof machine>>, id: string) {
  return JSON.parse(await made.os.files.readText(`/run/kata-containers/${id}/config.json`))
}

describe('CreateContainer', () => {
  it('writes a bundle and bind-mounts its root from the image', async () => {
    const made = await machineWithSandbox()
    await made.handlers.createContainer(containerRequest('c1'), neverAborted)
    const rootfs = '/run/kata-containers/c1/rootfs'
    expect(await configOf(made, 'c1')).toMatchObject({
      root: { path: rootfs },
      process: {
        args: ['sh'],
        oomScoreAdj: 0,
        rlimits: [{ type: 'RLIMIT_NOFILE', hard: 1048576, soft: 1048576 }],
      },
      linux: {
        cgroupsPath: '/containers/c1',
        namespaces: [
          { type: 'mount' },
          { type: 'ipc', path: '/run/sandbox-ns/ipc' },
          { type: 'uts', path: '/run/sandbox-ns/uts' },
          { type: 'pid' },
        ],
      },
    })
    expect(made.os.mounts.requests).toContainEqual({
      source: '/images/root',
      target: rootfs,
      type: '',
      flags: ['bind'],
      data: '',
    })
  })

  it('uses a root that a storage has mounted', async () => {
    const made = await machineWithSandbox()
    const storages = [{ mountPoint: '/run/kata-containers/c1/rootfs' }]
    await made.handlers.createContainer(containerRequest('c1', {}, { storages }), neverAborted)
    expect(made.os.mounts.isMountPoint('/run/kata-containers/c1/rootfs')).toBe(false)
  })

  it('unmounts the root that an earlier container has left, and fails when it cannot', async () => {
    const made = await machineWithSandbox()
    const { os, handlers } = made
    const rootfs = '/run/kata-containers/c1/rootfs'
    await os.files.put(`${rootfs}/of-another`, '')
    await os.mounts.mount({ source: '/dev/vdb', target: rootfs, type: 'ext4', flags: [], data: '' })
    os.mounts.failWith = (call) => (call === 'unmount' ? 'EBUSY' : undefined)
    await expect(handlers.createContainer(containerRequest('c1'), neverAborted)).rejects.toThrow(
      `unmount ${rootfs}: EBUSY`,
    )
    os.mounts.failWith = () => undefined
    await handlers.createContainer(containerRequest('c1'), neverAborted)
    expect(await os.files.list(rootfs)).toEqual([])
    expect(os.mounts.entries.filter(({ mountPoint }) => mountPoint === rootfs)).toMatchObject([
      { source: '/images/root' },
    ])
  })

  it('adds a cgroup namespace on cgroup v2', async () => {
    const made = await machineWithSandbox()
    await made.os.files.put('/sys/fs/cgroup/cgroup.controllers', '')
    await made.handlers.createContainer(containerRequest('c1'), neverAborted)
    expect((await configOf(made, 'c1')).linux.namespaces).toContainEqual({ type: 'cgroup' })
  })

  it('reads no limit of the guest that the specification does not ask for', async () => {
    const made = await machineWithSandbox()
    const { files } = made.os
    await files.makeDirectories('/sys/fs/cgroup/pids')
    await files.removeFile('/proc/self/limits')
    const create = (id: string, hasLimits: boolean) => {
      const Rlimits = hasLimits ? [{ Type: 'RLIMIT_NOFILE', Soft: 10n, Hard: 2n ** 30n }] : []
      const request = containerRequest(id, { Rlimits })
      if (request.OCI?.Linux !== undefined && hasLimits)
        request.OCI.Linux.Resources = LinuxResources.fromPartial({ Pids: { Limit: 7n } })
      return made.handlers.createContainer(request, neverAborted)
    }
    await create('limited', true)
    const { process, linux } = await configOf(made, 'limited')
    expect(process.rlimits).toEqual([{ type: 'RLIMIT_NOFILE', soft: 10, hard: 1_048_576 }])
    expect(linux.resources.pids).toEqual({ limit: 7 })
    await expect(create('none', false)).rejects.toThrow('read /proc/self/limits: ENOENT')
    await files.put('/proc/self/limits', '')
    await expect(create('none', false)).rejects.toThrow('read /proc/sys/kernel/threads-max: ENOENT')
    await files.put('/proc/sys/kernel/threads-max', '90\n')
    await files.put('/proc/sys/kernel/pid_max', '80\n')
    await files.removeFile('/proc/sys/fs/nr_open')
    await create('none', false)
    expect((await configOf(made, 'none')).linux.resources.pids).toEqual({ limit: 40 })
  })

  it('sets net sysctls in the guest', async () => {
    const made = await machineWithSandbox()
    const request = containerRequest('c1')
    if (request.OCI?.Linux !== undefined) request.OCI.Linux.Sysctl = { 'net.core.somaxconn': '9' }
    await made.handlers.createContainer(request, neverAborted)
    expect(await made.os.files.readText('/proc/sys/net/core/somaxconn')).toBe('9')
    expect((await configOf(made, 'c1')).linux).not.toHaveProperty('sysctl')
  })

  it('refuses an id in use, whatever the state of its container, and changes nothing', async () => {
    const made = await machineWithSandbox()
    const first = made.handlers.createContainer(containerRequest('c1'), neverAborted)
    await expect(made.handlers.createContainer(containerRequest('c1'), neverAborted)).rejects.toMatchObject({
      code: 'INTERNAL',
      message: "container id 'c1': already exists (creating)",
    })
    await first
    const before = await remains(made)
    await expect(made.handlers.createContainer(containerRequest('c1'), neverAborted)).rejects.toThrow(
      'created',
    )
    expect(await remains(made)).toEqual(before)
  })

  it("adds devices with the guest's device numbers, and allows their use", async () => {
    const made = await machineWithDisk()
    const Devices = [{ Path: '/dev/data', Type: 'b', Major: 8n, Minor: 0n, FileMode: 0o660 }]
    const Resources = { Devices: [{ Allow: true, Type: 'b', Major: 8n, Minor: 0n, Access: 'r' }] }
    const { OCI } = containerRequest('c1')
    const spec = { ...OCI, Linux: { ...OCI?.Linux, Devices, Resources } }
    await made.handlers.createContainer(
      containerRequest('c1', {}, { OCI: spec, devices: [DISK] }),
      neverAborted,
    )
    const { linux } = await configOf(made, 'c1')
    expect(linux.devices).toMatchObject([{ path: '/dev/data', type: 'b', major: 254, minor: 16 }])
    expect(linux.resources.devices).toEqual([
      { allow: true, type: 'b', major: 254, minor: 16, access: 'r' },
      { allow: true, type: 'b', major: 254, minor: 16, access: 'rwm' },
    ])
  })

  it('adds the devices that the annotations name as CDI devices', async () => {
    const made = await machineWithSandbox()
    const containerEdits = { env: ['GPU=0'], deviceNodes: [{ path: '/dev/gpu', type: 'c', major: 195 }] }
    const spec = { cdiVersion: '0.6.0', kind: 'a.b/gpu', devices: [{ name: '0', containerEdits }] }
    await made.os.files.put('/run/cdi/gpu.json', JSON.stringify(spec))
    await made.handlers.createContainer(requestForCdi('a.b/gpu=0'), neverAborted)
    const { process, linux } = await configOf(made, 'c1')
    expect(process.env).toEqual(['GPU=0'])
    expect(linux.devices).toMatchObject([{ path: '/dev/gpu', major: 195, minor: 0 }])
    expect(linux.resources.devices).toEqual([{ allow: true, type: 'c', major: 195, minor: 0, access: 'rwm' }])
  })

  it('waits for no device when a CDI name is invalid', async () => {
    const made = await machineWithSandbox()
    const device = { type: 'vfio-pci-gk', id: 'x', containerPath: '/dev/x', options: ['0000:1a:02.3=1e'] }
    const request = { ...requestForCdi('gpu'), devices: [Device.fromPartial(device)] }
    await expect(made.handlers.createContainer(request, neverAborted)).rejects.toThrow(
      '"gpu", want vendor/class=name',
    )
    expect(made.os.clock.sleeping).toBe(0)
  })

  it.each(['/pods/c1', 'pods:c1', '/pods', '/pods/c1/below', '/'])(
    'refuses the cgroup %s, which overlaps another container’s',
    async (CgroupsPath) => {
      const inCgroup = (id: string, path: string) => {
        const request = containerRequest(id)
        if (request.OCI?.Linux !== undefined) request.OCI.Linux.CgroupsPath = path
        return request
      }
      const made = await machineWithSandbox()
      const id = CgroupsPath === '/' ? 'pods' : 'c2'
      const first = made.handlers.createContainer(inCgroup('c1', '/pods/c1'), neverAborted)
      const creating = made.handlers.createContainer(inCgroup(id, CgroupsPath), neverAborted)
      await expect(creating).rejects.toMatchObject({
        code: 'INVALID_ARGUMENT',
        message: expect.stringMatching(/^linux.cgroupsPath: .*\/pods\/c1 is the cgroup of container 'c1'$/),
      })
      await first
      await made.handlers.createContainer(inCgroup(id, '/pods/c10'), neverAborted)
    },
  )

  it('refuses a cgroup with other processes, and leaves them alive', async () => {
    const made = await machineWithSandbox()
    const cgroup = '/sys/fs/cgroup/freezer/containers/system.slice'
    await made.os.files.put(`${cgroup}/cgroup.procs`, '')
    await made.os.files.put(`${cgroup}/sshd/cgroup.procs`, '77\n')
    const before = await remains(made)
    const request = containerRequest('c1')
    if (request.OCI?.Linux !== undefined) request.OCI.Linux.CgroupsPath = '/system.slice'
    await expect(made.handlers.createContainer(request, neverAborted)).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: 'linux.cgroupsPath: cgroup of container c1: not empty',
    })
    expect(made.os.system.signals).toEqual([])
    expect(await remains(made)).toEqual(before)
  })

  it('rebinds passed-through devices to their drivers when a later step fails', async () => {
    const made = await machineWithSandbox()
    await addPciBus(made.os)
    await plugPci(made.os, '0000:00:06.0', '5')
    const device = { type: 'vfio-pci', id: 'x', containerPath: '/dev/x', options: ['0000:1a:02.3=06'] }
    const creating = made.handlers.createContainer(
      containerRequest('c1', {}, { devices: [device] }),
      neverAborted,
    )
    await expect(creating).rejects.toThrow('Missing devices in OCI spec: "/dev/x"')
    expect(await pciDriverOf(made.os, '0000:00:06.0')).toBe('mlx5_core')
  })

  it("sets the guest's PCI addresses in the environment of every process", async () => {
    const made = await machineWithSandbox()
    await addPciBus(made.os)
    await plugPci(made.os, '0000:00:06.0', '5')
    const Env = ['PCIDEVICE_X=0000:1a:02.3']
    const device = { type: 'vfio-pci-gk', id: 'x', containerPath: '/dev/x', options: ['0000:1a:02.3=06'] }
    await made.handlers.createContainer(containerRequest('c1', { Env }, { devices: [device] }), neverAborted)
    expect((await configOf(made, 'c1')).process.env).toEqual(['PCIDEVICE_X=0000:00:06.0'])
    await made.handlers.startContainer({ containerId: 'c1' }, neverAborted)
    const written: string[] = []
    const write = made.os.files.write.bind(made.os.files)
    made.os.files.write = (path, data, options) => {
      written.push(String(data))
      return write(path, data, options)
    }
    await made.handlers.execProcess(execRequest('c1', 'e1', { Env }), neverAborted)
    expect(written.some((text) => text.includes('"PCIDEVICE_X=0000:00:06.0"'))).toBe(true)
  })

  it('creates several containers at the same time', async () => {
    const { handlers, runtime } = await machineWithSandbox()
    const ids = ['c1', 'c2', 'c3']
    await Promise.all(ids.map((id) => handlers.createContainer(containerRequest(id), neverAborted)))
    expect(runtime.processes.map(({ containerId }) => containerId).sort()).toEqual(ids)
  })

  it.each([
    ['a path as an id', containerRequest('../x'), 'INTERNAL', "container id '../x': invalid"],
    ['a request without a spec', containerRequest('c1', {}, { OCI: undefined }), 'INTERNAL', 'EINVAL'],
    [
      'a device without an id',
      containerRequest('c1', {}, { devices: [{ type: 'blk' }] }),
      'INVALID_ARGUMENT',
      'id and vm_path are empty',
    ],
    [
      'a device that the spec does not list',
      containerRequest('c1', {}, { devices: [DISK] }),
      'INVALID_ARGUMENT',
      'Missing devices',
    ],
    [
      'a shared mount with an invalid path',
      containerRequest('c1', {}, { sharedMounts: [{ name: 'm', srcPath: '/a', dstPath: '../b' }] }),
      'INVALID_ARGUMENT',
      'shared_mounts[0].dst_path',
    ],
  ])('refuses %s and leaves nothing behind', async (_what, request, code, text) => {
    const made = await machineWithDisk()
    const before = await remains(made)
    await expect(made.handlers.createContainer(request, neverAborted)).rejects.toMatchObject({
      code,
      message: expect.stringContaining(text),
    })
    expect((await remains(made)).mounts).toEqual(before.mounts)
    expect((await remains(made)).processes).toBe(0)
  })

  it('makes a container before CreateSandbox, with namespaces of its own', async () => {
    const made = await machine()
    const before = await remains(made)
    await made.handlers.createContainer(containerRequest('c1'), neverAborted)
    expect((await configOf(made, 'c1')).linux.namespaces).toEqual(
      ['mount', 'ipc', 'uts', 'pid'].map((type) => ({ type })),
    )
    await made.handlers.startContainer({ containerId: 'c1' }, neverAborted)
    await made.handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
    expect(await remains(made)).toEqual({
      ...before,
      files: expect.arrayContaining(before.files),
    })
  })

  describe('with what the guest lacks', () => {
    const PROFILE = 'cri-containerd.apparmor.d'
    const Flags = ['SECCOMP_FILTER_FLAG_LOG']
    const request = () =>
      containerRequest(
        'c1',
        {},
        {
          OCI: {
            ...containerRequest('c1').OCI,
            Process: { Args: ['sh'], ApparmorProfile: PROFILE, SelinuxLabel: 'a:b:c' },
            Linux: {
              Resources: { HugepageLimits: [{ Pagesize: '2MB', Limit: 4n << 20n }] },
              Seccomp: { DefaultAction: 'SCMP_ACT_ALLOW', Flags },
            },
          },
        },
      )
    async function created(furnish: (os: FakeOs) => Promise<void>) {
      const { log, lines } = recordingLog()
      const made = await machineWithSandbox({ log: { ...log, with: () => log } })
      await made.os.files.put('/usr/sbin/runc', '')
      await furnish(made.os)
      await made.handlers.createContainer(request(), neverAborted)
      const told = lines.filter(({ message }) => message === 'specification not followed')
      return { config: await configOf(made, 'c1'), told: told.map(({ fields }) => fields) }
    }

    it('drops each part with one line', async () => {
      const { config, told } = await created(async (os) => {
        os.tools.script(([, verb]) =>
          verb === 'features' ? { stdout: '{"linux":{"seccomp":{}}}' } : undefined,
        )
        await os.files.put('/sys/kernel/security/apparmor/profiles', `${PROFILE}2 (enforce)\n`)
        await os.files.makeDirectories('/sys/fs/cgroup/hugetlb')
        await os.files.makeDirectories('/sys/kernel/mm/hugepages/hugepages-1048576kB')
      })
      expect(config.process).not.toHaveProperty('apparmorProfile')
      expect(config.process).not.toHaveProperty('selinuxLabel')
      expect(config.linux).not.toHaveProperty('resources.hugepageLimits')
      expect(config.linux.seccomp).not.toHaveProperty('flags')
      expect(told).toMatchObject([
        { containerId: 'c1', field: 'process.apparmorProfile', value: PROFILE },
        { containerId: 'c1', field: 'process.selinuxLabel', value: 'a:b:c' },
        { containerId: 'c1', field: 'linux.resources.hugepageLimits', value: '2MB' },
        { containerId: 'c1', field: 'linux.seccomp.flags', value: Flags[0] },
      ])
    })

    it('keeps each part that it has', async () => {
      const { config, told } = await created(async (os) => {
        const features = { linux: { seccomp: { supportedFlags: Flags } } }
        os.tools.script(([, verb]) =>
          verb === 'features' ? { stdout: JSON.stringify(features) } : undefined,
        )
        await os.files.put(
          '/sys/kernel/security/apparmor/profiles',
          `other (complain)\n${PROFILE} (enforce)\n`,
        )
        await os.files.put('/sys/fs/selinux/enforce', '1')
        await os.files.put('/sys/fs/cgroup/cgroup.controllers', 'cpu hugetlb memory\n')
        await os.files.makeDirectories('/sys/kernel/mm/hugepages/hugepages-2048kB')
      })
      expect(config).toMatchObject({
        process: { apparmorProfile: PROFILE, selinuxLabel: 'a:b:c' },
        linux: { resources: { hugepageLimits: [{ pageSize: '2MB' }] }, seccomp: { flags: Flags } },
      })
      expect(told).toEqual([])
    })

    it('drops limits of huge pages without the controller', async () => {
      const { told } = await created(async (os) => {
        os.tools.script(([, verb]) => (verb === 'features' ? { exitCode: 1 } : undefined))
        await os.files.put('/sys/fs/cgroup/cgroup.controllers', 'cpu memory\n')
        await os.files.makeDirectories('/sys/kernel/mm/hugepages/hugepages-2048kB')
      })
      expect(told).toContainEqual(expect.objectContaining({ field: 'linux.resources.hugepageLimits' }))
    })
  })

  it('refuses a container after the sandbox was destroyed', async () => {
    const { handlers } = await machineWithSandbox()
    await handlers.destroySandbox({}, neverAborted)
    await expect(handlers.createContainer(containerRequest('c1'), neverAborted)).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'sandbox: not active (destroyed)',
    })
  })

  it('names the program that was not found', async () => {
    const { handlers, runtime, os } = await machineWithSandbox()
    runtime.refuse = (verb) => {
      if (verb !== 'create') return undefined
      const log = os.tools.calls.at(-1)?.argv.find((word) => word.endsWith('log.json')) ?? ''
      const msg = 'exec: "nosuch": executable file not found in $PATH'
      return os.files.write(log, JSON.stringify({ level: 'error', msg })).then(() => ({ exitCode: 1 }))
    }
    const request = containerRequest('c1', { Args: ['nosuch'] })
    await expect(handlers.createContainer(request, neverAborted)).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringContaining('the file nosuch was not found'),
    })
  })
})

describe('checkContainerId', () => {
  it.each(['ab', 'A1', '0-_.', 'a'.repeat(255)])('accepts %s', (id) => {
    expect(() => checkContainerId(id)).not.toThrow()
  })

  it.each(['', 'a', '.a', '-a', '_a', 'a/b', '..', 'a b', 'a\n', 'ä1', 'a'.repeat(256), 'shared', 'sandbox'])(
    'refuses %j',
    (id) => {
      expect(() => checkContainerId(id)).toThrow(`'${id}'`)
    },
  )

  it.each([
    ['a', "invalid, want 2 to 255 letters, digits, '.', '-' or '_', a letter or digit first"],
    ['shared', 'reserved, want none of sandbox, shared'],
  ])('says by which rule %j is refused', (id, rule) => {
    expect(() => checkContainerId(id)).toThrow(`container id '${id}': ${rule}`)
  })
})
