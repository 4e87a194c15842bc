import type { FakeOs } from '../../fakes/fake-os.ts'

const BUS = '/sys/bus/pci'
const ROOT = '/sys/devices/pci0000:00'

export async function addPciBus(os: FakeOs): Promise<void> {
  for (const folder of [ROOT, `${BUS}/devices`, `${BUS}/drivers/vfio-pci`, `${BUS}/drivers/mlx5_core`]) {
    await os.files.makeDirectories(folder)
  }
  const write = os.files.write.bind(os.files)
  os.files.write = async (path, data, options) => {
    const driver = /^(\/sys\/bus\/pci\/devices\/[^/]+\/driver)\/unbind$/.exec(path)?.[1]
    if (driver !== undefined) return os.files.removeFile(driver)
    if (path !== `${BUS}/drivers_probe`) return write(path, data, options)
    const device = `${BUS}/devices/${data}`
    const override = (await os.files.readText(`${device}/driver_override`)).trim()
    await os.files.symlink(`../../../bus/pci/drivers/${override || 'mlx5_core'}`, `${device}/driver`)
    if (override !== 'vfio-pci') return
    const group = (await os.files.readLink(`${device}/iommu_group`)).replace(/.*\//, '')
    await os.files.makeSpecial(`/dev/vfio/${group}`, { kind: 'character', major: 240, minor: Number(group) })
  }
}

/** Plugs a device of an IOMMU group; a driver binds it at once. */
export async function plugPci(os: FakeOs, address: string, group: string): Promise<void> {
  const device = `${ROOT}/${address}`
  await os.files.put(`${device}/driver_override`, '(null)\n')
  await os.files.symlink(`../../../kernel/iommu_groups/${group}`, `${device}/iommu_group`)
  await os.files.symlink('../../../bus/pci/drivers/mlx5_core', `${device}/driver`)
  await os.files.symlink(`../../../devices/pci0000:00/${address}`, `${BUS}/devices/${address}`)
  os.uevents.send(`add@/devices/pci0000:00/${address}\0ACTION=add\0SUBSYSTEM=pci\0`)
}

export async function pciDriverOf(os: FakeOs, address: string): Promise<string | undefined> {
  const link = `${BUS}/devices/${address}/driver`
  return (await os.files.lstat(link)) === undefined
    ? undefined
    : (await os.files.readLink(link)).replace(/.*\//, '')
}
