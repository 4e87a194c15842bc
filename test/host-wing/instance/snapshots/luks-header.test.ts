import { truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { Layer } from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { checkBase } from '../../../../src/host/instance/snapshots/check-layers.ts'
import { readLuksHeader } from '../../../../src/host/instance/snapshots/luks-header.ts'
import { emptyOverlay } from '../../../../src/host/instance/snapshots/overlay-file.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'

const SECTOR = 512
const MATERIAL = 64 * 4000
const path = join(temporaryFolder(), 'disk')

/** A LUKS header with the places of its eight keys, and a disk of 1 MiB behind. */
function image({ version = 1, payload = 4096, stripes = 4000 } = {}): Buffer {
  const bytes = Buffer.alloc(4096 * SECTOR + 2 ** 20, 0xee)
  bytes.write('LUKS\xba\xbe', 0, 'latin1')
  bytes.writeUInt16BE(version, 6)
  bytes.writeUInt32BE(payload, 104)
  bytes.writeUInt32BE(64, 108)
  for (let slot = 0; slot < 8; slot++) {
    bytes.writeUInt32BE(8 + slot * 504, 208 + 48 * slot + 40)
    bytes.writeUInt32BE(stripes, 208 + 48 * slot + 44)
  }
  return bytes
}

it('is read to the end of its last key, and is in a layer behind all else', async () => {
  const disk = image()
  writeFileSync(path, disk)
  const { bytes, payloadOffset } = await readLuksHeader(path)
  const end = (8 + 7 * 504) * SECTOR + MATERIAL
  expect([payloadOffset, bytes.equals(disk.subarray(0, end))]).toEqual([4096 * SECTOR, true])
  const layer = emptyOverlay(2 ** 20, bytes)
  const at = Number(layer.readBigUInt64BE(104 + 8))
  expect([layer.readUInt32BE(32), layer.readUInt32BE(104), layer.readBigUInt64BE(104 + 16)]).toEqual([
    2,
    0x0537_be77,
    BigInt(end),
  ])
  expect([at, layer.subarray(at, at + end).equals(bytes)]).toEqual([4 * 65_536, true])
})

it.each([
  [image({ version: 2 }), 'not a LUKS image'],
  [Buffer.alloc(4096), 'not a LUKS image'],
  [Buffer.from('LUKS'), 'not a LUKS image'],
  [image({ payload: 8 }), 'a LUKS header of 2066432 bytes'],
  [image({ stripes: 2 ** 32 - 1 }), `a LUKS header of ${3536 * SECTOR + 64 * (2 ** 32 - 1)} bytes`],
  [image().subarray(0, 4096), '4096 bytes, want its LUKS header of 2066432'],
])('that is none is refused by its file', async (bytes, text) => {
  writeFileSync(path, bytes)
  await expect(readLuksHeader(path)).rejects.toMatchObject({
    code: 'FAILED_PRECONDITION',
    message: `${path}: ${text}`,
  })
})

it('is no part of the disk whose size is compared', async () => {
  writeFileSync(path, image())
  const layer = Layer.fromPartial({ backend: 'disk', base: path, secret: 'id', sizeBytes: 2n ** 20n })
  await expect(checkBase(layer)).resolves.toBeUndefined()
  truncateSync(path, 4096 * SECTOR + 2 ** 19)
  await expect(checkBase(layer)).rejects.toMatchObject({
    message: `backends.disk.file.path: ${path} has 524288 bytes, want at least 1048576: snapshots are on it`,
  })
  const missing = readLuksHeader(`${path}.missing`)
  await expect(missing).rejects.toMatchObject({ message: `${path}.missing: ENOENT` })
})
