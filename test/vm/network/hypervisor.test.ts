import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Instance } from '../../../src/gen/microvm/instance/v1/instance.ts'
import { LeaseMode, VMSpec_StartMode } from '../../../src/gen/vm.ts'
import { specToProto } from '../../../src/host/spec/to-proto.ts'
import { ensureImage } from '../../../src/image/ensure-image.ts'
import { DEFAULT_KERNEL } from '../../../src/image/packages.ts'
import { instanceJson } from '../../../src/microvm/machines/command.ts'
import { guestSpec } from '../../../src/microvm/run/guest-spec.ts'
import { busyboxRoot } from '../../support/containers/busybox-root.ts'
import { ctl } from '../../support/ctl/run-ctl.ts'
import { makeNetworkNamespace, type NetworkNamespace } from '../../support/host/network-namespace.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { cannotBoot, progress } from '../../support/vm/boot-guest.ts'
import { type HypervisorProcess, startHypervisor } from '../../support/wing/hypervisor-process.ts'

const GUEST = ['10.9.8.7', 'fd00:9::7']
const HOST = ['169.254.1.1', 'fd6d:6963:726f:766d::1']
const ROOT = '/run/kata-containers/shared/containers/root'

describe.skipIf(cannotBoot() !== undefined)('the point-to-point network of a hypervisor', () => {
  const folder = temporaryFolder()
  const state = join(folder, 'state')
  let namespace: NetworkNamespace
  let hypervisor: HypervisorProcess

  beforeAll(async () => {
    namespace = await makeNetworkNamespace()
    const file = join(folder, 'web.json')
    writeFileSync(
      file,
      JSON.stringify(instanceJson(Instance.fromPartial({ specification: await machine() }))),
    )
    const spec = {
      name: 'web',
      mode: VMSpec_StartMode.SM_RUN,
      leaseMode: LeaseMode.LM_STORAGE_LOCKING,
      address: GUEST,
    }
    const words = ['--machine', file, '--state', state, '--grace', '1']
    hypervisor = startHypervisor(spec, { words, enter: namespace.enter })
    await hypervisor.until('the machine runs')
  })

  afterAll(async () => {
    hypervisor.process.kill('SIGTERM')
    expect(await hypervisor.ended).toBe(0)
    await namespace.close()
  })

  const inGuest = async (...words: readonly string[]) => {
    const env = { MICROVM_SOCKET: join(state, 'hypervisor.sock') }
    const { status, stdout, stderr } = await ctl(['-a', 'microvm://web', '--wait', '120', ...words], { env })
    expect([status, stderr]).toEqual([0, ''])
    return stdout
  }

  it('is pinged from both sides', async () => {
    expect(await inGuest('Check')).toContain('SERVING')
    for (const address of GUEST)
      expect(namespace.run('busybox', 'ping', '-c', '1', address)).toContain('1 packets received')
    // It empties the folder for what a host shares.
    await inGuest('CreateSandbox', 'sandbox_id=pod')
    await inGuest('cp', '--guest', busyboxRoot(folder, ['ping']), ROOT)
    for (const address of HOST)
      expect(await inGuest('run', '--rootfs', ROOT, 'ping', '-c', '1', address)).toContain(
        '1 packets received',
      )
  })
})

async function machine() {
  const spec = guestSpec({
    machine: 'pc-q35-7.2',
    memoryMib: 1024,
    cpus: 1,
    boot: await ensureImage({ kernel: DEFAULT_KERNEL, form: 'initrd', progress }),
    containerRoot: undefined,
    link: {
      device: (slot, backend) => ({ kind: 'nic', slot, mac: '52:54:00:00:01:01', backend }),
      backend: { kind: 'tap', interfaceName: 'tap0' },
      commandLine: ['agent.server_addr=tcp://0.0.0.0:1024', `agent.server_peer=${HOST[0]}`],
    },
    append: [],
  })
  return specToProto(spec)
}
