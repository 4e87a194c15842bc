import { describe, expect, it } from 'vitest'
import { Host, Vm } from '../../../src/gen/microvm/controller/v1/controller.ts'
import { chooseHost } from '../../../src/host/controller/target/choose-host.ts'

type Partial<Type extends { fromPartial(part: never): unknown }> = Parameters<Type['fromPartial']>[0]

const host = (id: string, changes: Partial<typeof Host> = {}) =>
  Host.fromPartial({
    ...{ id, endpoint: `${id}:7443`, qemuVersion: '7.2.22', cpu: 'x', cpuModels: ['x86-64-v2'] },
    ...{ memoryMib: 1024n, networks: ['br0'], sharedFolders: ['/srv'], ...changes },
  })

const vm = (changes: Partial<typeof Vm> = {}) =>
  Vm.fromPartial({ authoritative: { podName: 'a/i' }, settings: { needs: NEEDS }, ...changes })

const NEEDS = { cpuModel: 'x86-64-v2', qemuVersion: '7.2', memoryMib: 512n, networks: ['br0'] }

const chosen = (machine: Vm, hosts: readonly Host[], toHost = '') => {
  const choice = chooseHost(machine, hosts, toHost)
  return 'reason' in choice ? choice.reason : choice.hosts.map(({ id }) => id)
}

describe('chooseHost', () => {
  it('prefers the host with the most free memory, and never the own one', () => {
    const hosts = [host('a', { memoryMib: 9999n }), host('b'), host('c', { memoryMib: 2048n })]
    expect(chosen(vm(), hosts)).toEqual(['c', 'b'])
    expect(chosen(vm(), hosts, 'b')).toEqual(['b'])
  })

  it('prefers the one that awaits this very VM', () => {
    const hosts = [host('a'), host('b'), host('c', { memoryMib: 600n, onlyVm: 'default/web' })]
    expect(chosen(vm({ namespace: 'default', name: 'web' }), hosts)).toEqual(['c', 'b'])
  })

  it.each<[string, Partial<typeof Host>]>([
    ['takes no more machines', { draining: true }],
    ['has QEMU 7.1.9, want 7.2 or later', { qemuVersion: '7.1.9' }],
    ['does not run CPU model x86-64-v2', { cpuModels: ['x86-64-v1'] }],
    ['has 511 MiB of memory free, want 512', { memoryMib: 511n }],
    ['takes default/db only', { onlyVm: 'default/db' }],
  ])('takes no host that %s', (reason, changes) => {
    expect(chosen(vm(), [host('a'), host('b', changes)])).toBe(`no host that fits: b: ${reason}`)
    expect(chosen(vm(), [host('a'), host('b', changes)], 'b')).toBe(`host b: ${reason}`)
  })

  it('takes newer versions of QEMU', () => {
    expect(chosen(vm(), [host('a'), host('b', { qemuVersion: '10.0.2' })])).toEqual(['b'])
  })

  it('moves a machine with the processor of its host only to an equal one', () => {
    const machine = vm({ settings: { needs: { cpuModel: 'host' } } })
    const reason = 'has another processor, and the CPU model is host'
    expect(chosen(machine, [host('a'), host('b', { cpu: 'y' })])).toBe(`no host that fits: b: ${reason}`)
    expect(chosen(machine, [host('a'), host('b')])).toEqual(['b'])
  })

  it('wants a host that reaches shared volumes; files of the host move along', () => {
    const machine = vm({
      volumes: [
        { key: 'local', host: 'a', path: '/x' },
        { key: 'far', path: '/srv/web/root' },
      ],
    })
    expect(chosen(machine, [host('a'), host('b')])).toEqual(['b'])
    const reason = 'does not reach volume far at /srv/web/root'
    expect(chosen(machine, [host('a'), host('b', { sharedFolders: ['/srv/we'] })])).toBe(
      `no host that fits: b: ${reason}`,
    )
  })

  it('wants the bridges of cards, and the storage of disks that stay, unless the host is named or says nothing', () => {
    const machine = vm({ settings: { needs: { sharedPaths: ['/srv/web/disk'] } } })
    expect(chosen(machine, [host('a'), host('b'), host('c', { sharedFolders: [] })])).toEqual(['b', 'c'])
    const other = host('b', { sharedFolders: ['/srv/we'] })
    expect(chosen(machine, [host('a'), other])).toBe(
      'no host that fits: b: does not reach disk /srv/web/disk',
    )
    expect(chosen(machine, [host('a'), other], 'b')).toEqual(['b'])
    expect(chosen(vm(), [host('a'), host('b', { networks: [] })])).toEqual(['b'])
    const elsewhere = host('b', { networks: ['br1'] })
    expect(chosen(vm(), [host('a'), elsewhere])).toBe('no host that fits: b: has no network br0')
    expect(chosen(vm(), [host('a'), elsewhere], 'b')).toEqual(['b'])
  })

  it('leaves network and storage to a host that awaits the VM with backends of its own', () => {
    const needs = { networks: ['br7'], sharedPaths: ['/data/disk'] }
    const machine = vm({ namespace: 'default', name: 'web', settings: { needs } })
    expect(chosen(machine, [host('a'), host('b', { onlyVm: 'default/web' })])).toEqual(['b'])
  })

  it('moves no machine whose devices stay', () => {
    const machine = vm({
      settings: {
        needs: { obstacles: ['machine microvm has no versions'] },
        specification: {
          devices: {
            data: { backend: 'data-file', disk: { nvme: true } },
            docs: { backend: 'docs-share', share: { tag: 'docs' } },
            old: { backend: 'old-folder', share: { tag: 'old' } },
          },
          backends: { 'docs-share': { virtiofsd: {} }, 'old-folder': { folder: {} } },
        },
      },
    })
    expect(chosen(machine, [host('a'), host('b')])).toBe(
      'device data: an nvme disk does not move; device docs: a virtio-fs share does not move; device old: a 9p share does not move; machine microvm has no versions',
    )
  })

  it('tells why there is no host', () => {
    expect(chosen(vm(), [host('a')])).toBe('no host that fits: no other is there')
    expect(chosen(vm(), [host('a')], 'z')).toBe('host z: is not there')
    expect(chosen(vm(), [host('a')], 'a')).toBe('host a: the VM runs there, want another host')
  })
})
