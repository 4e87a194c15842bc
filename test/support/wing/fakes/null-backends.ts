import type { MachineBackend, MachineDevice } from '../../../../src/host/machine/machine.ts'
import { qemuName } from '../../../../src/host/qemu/machine/addresses.ts'
import type { Provision } from '../../../../src/host/qemu/machine/machine-arguments.ts'

/** Backends of an expanded machine that need nothing of the host but a folder for sockets: zeros, and nobody to talk to. */
export function nullBackends(folder: string) {
  let hubs = 0
  return (key: string, { kind, model }: MachineDevice, backend: MachineBackend): Provision => {
    const id = `${qemuName(key)}.b`
    const silent = (properties: Provision['properties'] = { chardev: id }): Provision => ({
      parts: [{ option: 'chardev', type: 'null', properties: { id } }],
      properties,
    })
    switch (kind) {
      case 'disk':
      case 'cdrom': {
        if (backend.kind === 'empty') return { parts: [], properties: {} }
        const zeros = { driver: 'null-co', 'node-name': id, size: 1 << 20, 'read-only': kind === 'cdrom' }
        return { parts: [{ option: 'blockdev', properties: zeros }], properties: { drive: id } }
      }
      case 'nic': {
        hubs += 1
        const properties = { id, hubid: hubs }
        return { parts: [{ option: 'netdev', type: 'hubport', properties }], properties: { netdev: id } }
      }
      case 'channel': {
        const properties = { id, name: 'vdagent' }
        if (backend.kind !== 'spice-agent') return silent()
        return { parts: [{ option: 'chardev', type: 'spicevmc', properties }], properties: { chardev: id } }
      }
      case 'console':
        return silent()
      case 'display': {
        const spice = `unix=on,addr=${folder}/spice.sock,disable-ticketing=on`
        const words = model === 'vnc' ? ['-vnc', `unix:${folder}/vnc.sock`] : ['-spice', spice]
        return { parts: [], properties: {}, words }
      }
      case 'rng':
        return {
          parts: [{ option: 'object', type: 'rng-builtin', properties: { id } }],
          properties: { rng: id },
        }
      case 'share':
        if (model !== 'virtio-9p') throw new Error(`${key}: virtio-fs wants a daemon`)
        return { parts: [{ option: 'fsdev', type: 'synth', properties: { id } }], properties: { fsdev: id } }
      case 'firmware-item':
        return { parts: [], properties: {}, words: ['-fw_cfg', 'name=opt/org.example/item,string=x'] }
      default:
        throw new Error(`${key}: no backend for a ${kind}`)
    }
  }
}
