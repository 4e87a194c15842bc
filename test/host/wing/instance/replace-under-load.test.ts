import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { linkSync, readFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { neverAborted } from '../../../../src/base/abort.ts'
import { replaceFile } from '../../../../src/host/instance/devices/replace-file.ts'
import { type Part, plugCommand } from '../../../../src/host/qemu/parts.ts'
import { addPart } from '../../../../src/host/qemu/qmp/add-part.ts'
import type { QmpClient } from '../../../../src/host/qemu/qmp/client.ts'
import { connectQmp } from '../../../../src/host/qemu/qmp/connect.ts'
import { nodeNames, specKey } from '../../../../src/host/spec/spec-key.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { image } from '../../../support/wing/real-wing.ts'

const KEY = 'root-file'
const { format, file } = nodeNames(specKey(KEY))
const BLOCK = 64 * 1024
const BLOCKS = 256
const REPLACEMENTS = 20

it('replaces the file of a disk that is written to, and loses no write', async () => {
  const folder = temporaryFolder()
  const paths = ['a', 'b'].map((name) => image(folder, name, 16))
  const [first = '', second = ''] = paths
  await withDisk({ folder, path: first, machine: ['-machine', 'none'] }, async (qmp) => {
    const done = new AbortController()
    const written = writeUntil(qmp, done.signal)
    for (let count = 1; count <= REPLACEMENTS; count++) {
      const path = count % 2 === 1 ? second : first
      await replaceFile({ machine: () => ({ qmp }), ending: neverAborted }, KEY, {
        path,
        nodes: nodesOf(path),
      })
    }
    done.abort()
    const blocks = await written
    expect(blocks).toBeGreaterThan(REPLACEMENTS)
    const contents = paths.map((path) => readFileSync(path))
    const lost = Array.from({ length: Math.min(blocks, BLOCKS) }, (_, block) => block).filter(
      (block) => !contents.some((bytes) => bytes[block * BLOCK] === PATTERN),
    )
    expect(lost).toEqual([])
    const nodes = await qmp.execute('query-named-block-nodes', { flat: true }, neverAborted)
    expect(nodes).toHaveLength(2)
  })
})

it('refuses another name of the same file, which QEMU has locked, and goes on with the first', async () => {
  const folder = temporaryFolder()
  const first = image(folder, 'a', 16)
  const other = join(folder, 'b')
  linkSync(first, other)
  const machine = ['-machine', 'q35', '-S', '-device', `virtio-blk-pci,drive=${format}`]
  await withDisk({ folder, path: first, machine }, async (qmp) => {
    const replacing = replaceFile({ machine: () => ({ qmp }), ending: neverAborted }, KEY, {
      path: other,
      nodes: nodesOf(other),
    })
    await expect(replacing).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `backend ${KEY}: ${other}: blockdev-reopen: Failed to get "write" lock`,
    })
    const nodes = await qmp.execute('query-named-block-nodes', { flat: true }, neverAborted)
    expect(nodes.map((node) => node.file)).toEqual([first, first])
  })
})

it('removes a network at once that it has added', async () => {
  const folder = temporaryFolder()
  const path = join(folder, 'network')
  const server = createServer().listen(path)
  await once(server, 'listening')
  const network: Part = {
    option: 'netdev',
    type: 'stream',
    properties: { id: 'a', 'addr.type': 'unix', 'addr.path': path },
  }
  await withDisk({ folder, path: image(folder, 'a', 16), machine: ['-machine', 'none'] }, async (qmp) => {
    for (let count = 1; count <= 10 * REPLACEMENTS; count++) {
      await addPart(qmp, plugCommand(network), neverAborted)
      await qmp.command({ execute: 'netdev_del', arguments: { id: 'a' } }, neverAborted)
    }
    expect(qmp.isClosed).toBe(false)
  })
  server.close()
})

function nodesOf(filename: string): readonly Part[] {
  return [
    { option: 'blockdev', properties: { driver: 'file', 'node-name': file, filename } },
    { option: 'blockdev', properties: { driver: 'raw', 'node-name': format, file } },
  ]
}

interface Disk {
  readonly folder: string
  readonly path: string
  readonly machine: readonly string[]
}

async function withDisk(
  { folder, path, machine }: Disk,
  use: (qmp: QmpClient) => Promise<void>,
): Promise<void> {
  const socket = join(folder, 'qmp.sock')
  const qemu = spawn('qemu-system-x86_64', [
    ...['-nodefaults', '-display', 'none'],
    ...['-blockdev', `driver=file,node-name=${file},filename=${path}`],
    ...['-blockdev', `driver=raw,node-name=${format},file=${file}`],
    ...machine,
    ...['-qmp', `unix:${socket},server=on,wait=off`],
  ])
  const exited = once(qemu, 'exit')
  try {
    await use(await connectQmp(socket, neverAborted))
  } finally {
    qemu.kill('SIGKILL')
    await exited
  }
}

const PATTERN = 0xa5

/** Begins to write block after block, and returns how many once all are written. */
async function writeUntil(qmp: QmpClient, signal: AbortSignal): Promise<number> {
  let block = 0
  for (; !signal.aborted; block++)
    await monitor(qmp, `aio_write -P ${PATTERN} ${(block % BLOCKS) * BLOCK} ${BLOCK}`)
  await monitor(qmp, 'aio_flush')
  return block
}

async function monitor(qmp: QmpClient, command: string): Promise<void> {
  const line = { 'command-line': `qemu-io ${format} "${command}"` }
  const answer = await qmp.command({ execute: 'human-monitor-command', arguments: line }, neverAborted)
  expect(answer).not.toContain('rror')
}
