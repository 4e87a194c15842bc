import { FakeOs } from '../../fakes/fake-os.ts'

/** Differs from the kernel's path. */
export const ROOT = '/fw'

export const OPT_ITEM = 'opt/vm.metropolis.monogon.dev/v1/metadata.pb'
export const BARE_ITEM = 'vm.metropolis.monogon.dev/v1/metadata.pb'

/** An item as the driver shows it. `size` and `byKeyOnly` make a malformed tree. */
export interface Item {
  readonly name: string | Uint8Array
  readonly bytes: Uint8Array
  readonly size?: number
  readonly byKeyOnly?: boolean
}

/** The tree that qemu_fw_cfg makes for these items; `undefined` leaves out the device. */
export async function firmwareTree(items: readonly Item[] | undefined) {
  const { files } = new FakeOs()
  await files.makeDirectories(ROOT)
  if (items !== undefined) await files.makeDirectories(`${ROOT}/by_key`)
  for (const [index, { name, bytes, size = bytes.length, byKeyOnly }] of (items ?? []).entries()) {
    const folder = `${ROOT}/by_key/${32 + index}`
    await files.put(`${folder}/size`, `${size}\n`)
    await files.put(`${folder}/name`, '')
    await files.write(`${folder}/name`, Buffer.concat([Buffer.from(name), Buffer.from('\n')]))
    await files.put(`${folder}/raw`, '')
    await files.write(`${folder}/raw`, bytes)
    if (byKeyOnly) continue
    const link = `${ROOT}/by_name/${String(name)}`
    await files.makeDirectories(link.slice(0, link.lastIndexOf('/')))
    await files.symlink(folder, link)
  }
  return { files, root: ROOT }
}
