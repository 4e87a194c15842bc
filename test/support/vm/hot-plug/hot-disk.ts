import { execFileSync } from 'node:child_process'
import { mkdirSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { specKey } from '../../../../src/host/spec/spec-key.ts'
import type { HotDisk } from './hot-plug.ts'

const SIZE_BYTES = 4 * 2 ** 20

/** An ext4 disk with a file `name` that contains the disk's name. */
export function hotDisk(
  folder: string,
  name: string,
  { bus, slot }: { readonly bus: HotDisk['bus']; readonly slot: number },
): HotDisk {
  const [tree, path] = [join(folder, name), join(folder, `${name}.img`)]
  mkdirSync(tree)
  writeFileSync(join(tree, 'name'), name)
  writeFileSync(path, '')
  truncateSync(path, SIZE_BYTES)
  execFileSync('/sbin/mkfs.ext4', ['-q', '-d', tree, path])
  return {
    key: specKey(name),
    device: { kind: 'disk', slot, serial: name, backend: specKey(`${name}-file`) },
    backend: { kind: 'file', path, access: 'read-write' },
    bus,
  }
}
