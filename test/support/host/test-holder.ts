import { once } from 'node:events'
import { mkdirSync, readFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import type { Duplex } from 'node:stream'
import { afterEach, beforeAll } from 'vitest'
import { buildHolder } from '../../../src/build/native.ts'
import type { HeldChild, Holder } from '../../../src/host/instance/holder/holder.ts'
import type { HolderClient } from '../../../src/host/instance/holder/holder-client.ts'
import { startHolder } from '../../../src/host/instance/holder/start-holder.ts'
import { temporaryFolder } from '../temporary-folder.ts'

/** Holders for the tests of a file, which end after each test. */
export class TestHolders {
  #program = ''
  readonly #started: HolderClient[] = []
  readonly #root = temporaryFolder()
  #count = 0

  constructor(build: () => Promise<string> = buildHolder) {
    beforeAll(async () => {
      this.#program = await build()
    })
    afterEach(async () => {
      for (const holder of this.#started.splice(0)) await holder.end()
    })
  }

  get program(): string {
    return this.#program
  }

  newFolder(): string {
    const folder = join(this.#root, String(this.#count++))
    mkdirSync(folder, { mode: 0o700 })
    return folder
  }

  async start(folder = this.newFolder(), program = this.#program): Promise<HolderClient> {
    return this.endLater(await startHolder(folder, program))
  }

  endLater(holder: HolderClient): HolderClient {
    this.#started.push(holder)
    return holder
  }
}

export function sh(name: string, output: 'console' | 'log', script: string) {
  return { name, output, argv: ['/bin/sh', '-c', script] } as const
}

export async function readAll(stream: Duplex): Promise<Buffer> {
  const chunks: Buffer[] = []
  for await (const chunk of stream) chunks.push(chunk)
  return Buffer.concat(chunks)
}

/** Exactly so many bytes; later ones stay in the stream. */
export async function readBytes(stream: Duplex, count: number): Promise<Buffer> {
  let bytes = Buffer.alloc(0)
  while (bytes.length < count) {
    const chunk: Buffer | null = stream.read()
    if (chunk === null) await once(stream, 'readable')
    else bytes = Buffer.concat([bytes, chunk])
  }
  if (bytes.length > count) stream.unshift(bytes.subarray(count))
  return bytes.subarray(0, count)
}

export function nextExit(holder: Holder): Promise<HeldChild> {
  return new Promise((resolve) => {
    const stop = holder.onExit((child) => {
      stop()
      resolve(child)
    })
  })
}

/** Errors only close the socket: the other end may be killed. */
export async function connected(path: string): Promise<Socket> {
  const socket = connect(path).on('error', () => {})
  await once(socket, 'connect')
  return socket
}

/** The number in a line of /proc/PID/status; sizes are in KiB. */
export function statusNumber(pid: number, field: string): number {
  const line = readFileSync(`/proc/${pid}/status`, 'utf8')
    .split('\n')
    .find((each) => each.startsWith(`${field}:`))
  return Number.parseInt(line?.split(/\s+/)[1] ?? '', 10)
}
