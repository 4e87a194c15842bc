import { execFileSync } from 'node:child_process'
import { closeSync, openSync, readSync } from 'node:fs'
import { join } from 'node:path'
import { neverAborted } from '../../../src/base/abort.ts'
import type { Layer } from '../../../src/gen/microvm/instance/v1/instance.ts'
import type { QmpClient } from '../../../src/host/qemu/qmp/client.ts'

/** A cluster of a layer. */
export const BLOCK = 65_536

/** The first byte of each of the first blocks of a disk with the layers up to one, in the instance's folder `own`. */
export function bytesOf(
  own: string,
  disks: string,
  disk: string,
  layer: number,
  layers: readonly Layer[],
  count = 4,
): readonly number[] {
  const chain: string[] = []
  for (let id = layer; id !== 0; id = layers.find((each) => each.id === id)?.parent ?? 0)
    chain.push(join(own, 'disks', `${id}.qcow2`))
  return Array.from({ length: count }, (_, block) => {
    for (const path of chain) {
      const byte = byteOf(path, block)
      if (byte !== undefined) return byte
    }
    return at(join(disks, disk), block * BLOCK, 1).readUInt8()
  })
}

/** The first byte of a block of a LUKS disk with all its layers, read by QEMU with the secret in the file `key`. */
export function decryptedByte(
  own: string,
  disk: string,
  layers: readonly Layer[],
  key: string,
  block: number,
): number {
  const opened = (id: number): object => {
    const at = (filename: string) => ({ file: { driver: 'file', filename } })
    if (id === 0) return { driver: 'luks', 'key-secret': 'k', ...at(disk) }
    const backing = opened(layers.find((layer) => layer.id === id)?.parent ?? 0)
    const encrypt = { format: 'luks', 'key-secret': 'k' }
    return { driver: 'qcow2', encrypt, ...at(join(own, 'disks', `${id}.qcow2`)), backing }
  }
  const active = layers.find((layer) => layer.active && layer.base === disk)
  const words = ['--object', `secret,id=k,file=${key}`, '-r', '-c', `read -v ${block * BLOCK} 512`]
  const read = execFileSync('qemu-io', [...words, `json:${JSON.stringify(opened(active?.id ?? 0))}`], {
    encoding: 'utf8',
  })
  return Number.parseInt(/^\S+: {2}(\S+)/.exec(read)?.[1] ?? '', 16)
}

/** Runs a command of qemu-io on a disk of the machine. */
export async function io(qmp: QmpClient, disk: string, command: string): Promise<void> {
  const line = `qemu-io -d /machine/peripheral/name-${disk}/virtio-backend "${command}"`
  const asked = { execute: 'human-monitor-command', arguments: { 'command-line': line } }
  const answer = await qmp.command(asked, neverAborted)
  if (answer !== '') throw new Error(`${command}: ${answer}`)
}

const OFFSET = 0x00ff_ffff_ffff_fe00n

/** The first byte of a block in a qcow2 file; undefined when the block is not in it. */
function byteOf(path: string, block: number): number | undefined {
  const header = at(path, 0, 104)
  const table = at(path, Number(header.readBigUInt64BE(40)), 8).readBigUInt64BE() & OFFSET
  if (table === 0n) return undefined
  const entry = at(path, Number(table) + block * 8, 8).readBigUInt64BE()
  if ((entry & 1n) === 1n) return 0
  const place = Number(entry & OFFSET)
  return place === 0 ? undefined : at(path, place, 1).readUInt8()
}

function at(path: string, position: number, bytes: number): Buffer {
  const file = openSync(path, 'r')
  try {
    const read = Buffer.alloc(bytes)
    readSync(file, read, 0, bytes, position)
    return read
  } finally {
    closeSync(file)
  }
}
