import type { Any } from '../../../gen/google/protobuf/any.ts'
import { Device_Kind } from '../../../gen/microvm/agent/v1/introspection.ts'
import { type Device, Payload, Device_Stage as Stage } from '../../../gen/state/host/vpci.ts'
import { kind, pack, unpack } from './kind.ts'
import type { MachineFacts } from './machine-facts.ts'

const KIND = kind('vpci', 1, Payload)

const DRIVER = 'vfio-pci'

/** The daemon gives a machine no device of the host: those of containers are QEMU's own, whose state goes with the machine. */
export function saveVpci({ guest }: Pick<MachineFacts, 'guest'>): Any {
  const functions = guest?.devices.filter((device) => device.kind === Device_Kind.PCI) ?? []
  const held = Map.groupBy(guest?.containers.flatMap(({ vfioDevices }) => vfioDevices) ?? [], (each) => each)
  const devices = [...held].map(([address, holders]): [string, Device] => {
    const isBound = functions.some(({ name, driver }) => name === address && driver === DRIVER)
    const [instanceId = '', number] = address.split('.')
    return [
      address,
      {
        stage: isBound ? Stage.BOUND : Stage.BINDING,
        instanceId,
        function: Number(number),
        references: holders.length,
      },
    ]
  })
  return pack(KIND, { devices: Object.fromEntries(devices) })
}

export function restoreVpci(any: Any | undefined, where: string): Payload {
  return unpack(KIND, any, where)
}
