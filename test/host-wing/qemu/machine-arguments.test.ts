import { describe, expect, it } from 'vitest'
import { type MachineHost, machineArguments } from '../../../src/host/qemu/machine/machine-arguments.ts'
import { expanded } from '../../support/host-wing/expansion.ts'
import { nullBackends } from '../../support/wing/fakes/null-backends.ts'

const HOST: MachineHost = { acceleration: 'kvm', nowMs: Date.UTC(2026, 0, 2), provide: nullBackends('/run') }

function argumentsOf(features: Readonly<Record<string, unknown>>, host: Partial<MachineHost> = {}): string {
  return machineArguments(expanded(features), { ...HOST, ...host }).join(' ')
}

describe('the arguments of an expanded machine', () => {
  it('give Windows what KVM has, and nothing of it by emulation', () => {
    const system = { type: 'windows', clock: { adjustment: 3600 } }
    const kvm = argumentsOf({ machine: 'pc', system })
    expect(kvm).toContain('-machine pc-i440fx-7.2,usb=off,acpi=on,hpet=off,smm=off')
    expect(kvm).toContain('-cpu Westmere,hv-relaxed=on,hv-vapic=on,hv-spinlocks=8191,hv-time=on,enforce')
    expect(kvm).toContain('-global kvm-pit.lost_tick_policy=delay')
    expect(kvm).toContain('-rtc base=2026-01-02T01:00:00,driftfix=slew')
    const local = argumentsOf({ machine: 'pc', system }, { zoneSeconds: 7200 })
    expect(local).toContain('-rtc base=2026-01-02T03:00:00,driftfix=slew')
    const tcg = argumentsOf({ machine: 'pc', system }, { acceleration: 'tcg' })
    expect(tcg).toContain('-accel tcg -cpu Westmere,enforce')
    expect(tcg).not.toContain('kvm-pit')
  })

  it('have memory, CPUs and cells', () => {
    const cells = [
      { cpus: '0-1', memory: 512 },
      { cpus: '2-3', memory: 512 },
    ]
    const memory = { size: 1024, maximum: 2048, slots: 2, hugePages: '2M' }
    const words = argumentsOf({ memory, cpu: { count: 4, present: 2 }, numa: { cells } })
    expect(words).toContain('-smp 2,maxcpus=4,sockets=1,cores=4,threads=1 -m 1024M,slots=2,maxmem=2048M')
    expect(words).toContain('-object memory-backend-memfd,id=cell1,size=512M,hugetlb=on,hugetlbsize=2M')
    expect(words).toContain('-numa node,nodeid=1,cpus=2,cpus=3,memdev=cell1')
    expect(argumentsOf({ memory })).toContain(',memory-backend=memory ')
  })

  it('begin with memory that was saved, unless it would be several or of other pages', () => {
    const saved = { isShared: true, memory: { path: '/m' } } as const
    const words = argumentsOf({ memory: 512 }, saved)
    expect(words).toContain('-object memory-backend-file,id=memory,size=512M,mem-path=/m,share=off ')
    expect(words).toContain(',memory-backend=memory ')
    expect(words).not.toContain('memfd')
    const huge = { size: 512, hugePages: '2M' }
    expect(() => argumentsOf({ memory: huge }, saved)).toThrow('memory.hugePages: not possible')
    const numa = { cells: [{ cpus: '0', memory: 512 }] }
    expect(() => argumentsOf({ memory: 512, numa }, saved)).toThrow('numa.cells: not possible')
  })

  it('say what the board says of itself', () => {
    const uuid = '5f0f3c4e-8a3c-4c59-9a54-0d8b0a0f2e11'
    const words = argumentsOf({ smbios: { product: 'KubeVirt Node', serial: '1', uuid } })
    expect(words).toContain(
      `-uuid ${uuid} -rtc base=utc,driftfix=slew -smbios type=1,product=KubeVirt Node,serial=1`,
    )
  })

  it('have the generation id of the run', () => {
    const words = argumentsOf({ generationId: true }, { generationId: 'a-b' })
    expect(words).toContain('-device vmgenid,id=name-generation0,guid=a-b')
    expect(argumentsOf({}, { generationId: 'a-b' })).not.toContain('vmgenid')
  })

  it('put devices where the machine has them', () => {
    const words = argumentsOf({
      network: [{ source: 'lan', mac: '52:54:00:00:00:01', queues: 2 }],
      storage: [{ type: 'cdrom' }, { source: 'a', interface: 'virtio-scsi', serial: 'b' }],
      watchdog: { action: 'poweroff' },
      iothreads: 1,
    })
    expect(words).toContain('-device pcie-root-port,id=name-nic0-port,bus=pcie.0,addr=0x3.4,chassis=5')
    expect(words).toContain(
      '-device virtio-net-pci,id=name-nic0,bus=name-nic0-port,addr=0x0.0,mac=52:54:00:00:00:01,mq=on,vectors=6,netdev=name-nic0.b',
    )
    expect(words).toContain('-device ide-cd,id=name-cdrom0,bus=ide.0')
    expect(words).toContain(
      '-device scsi-hd,id=name-disk0,bus=name-scsi0.0,scsi-id=0,lun=0,serial=b,drive=name-disk0.b',
    )
    expect(words).toContain('-action watchdog=poweroff -device i6300esb,id=name-watchdog0,bus=pcie.0')
    expect(words).toContain('-object iothread,id=iothread0')
    expect(words).not.toContain('ich9-ahci')
  })

  it('of machine microvm have devices without PCI', () => {
    const words = argumentsOf({ machine: 'microvm', network: [{ source: 'lan' }] })
    expect(words).toContain('-device virtio-net-device,id=name-nic0,mac=')
    expect(words).toContain('-machine microvm,acpi=on,rtc=on,pit=on,pic=on,isa-serial=on')
  })
})
