import { mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Duplex } from 'node:stream'
import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import { buildHolder } from '../../../src/build/native.ts'
import type { HeldChild, Holder } from '../../../src/host/instance/holder.ts'
import { findHolder, startHolder } from '../../../src/host/instance/start-holder.ts'
import { processState } from '../../support/processes.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

let program: string
const started: Holder[] = []
let count = 0

beforeAll(async () => {
  program = await buildHolder()
})
afterEach(async () => {
  for (const holder of started.splice(0)) await holder.end()
})

const root = temporaryFolder()

function newFolder(): string {
  const folder = join(root, String(count++))
  mkdirSync(folder, 0o700)
  return folder
}

async function newHolder(folder = newFolder()): Promise<Holder> {
  const holder = await startHolder(folder, program)
  started.push(holder)
  return holder
}

function sh(name: string, output: 'console' | 'log', script: string) {
  return { name, output, argv: ['/bin/sh', '-c', script] } as const
}

async function all(stream: Duplex): Promise<string> {
  const chunks: Buffer[] = []
  for await (const chunk of stream) chunks.push(chunk)
  return Buffer.concat(chunks).toString()
}

function nextExit(holder: Holder): Promise<HeldChild> {
  return new Promise((resolve) => {
    const stop = holder.onExit((child) => {
      stop()
      resolve(child)
    })
  })
}

describe('holder', () => {
  it('keeps the console and tells its offsets', async () => {
    const holder = await newHolder()
    const exit = nextExit(holder)
    const child = await holder.start(sh('qemu', 'console', 'echo one; read word; echo "got $word"; exit 7'))
    expect(processState(child.pid)?.parent).toBe(holder.pid)
    const { first, stream } = await holder.attach(0, 0n)
    stream.write('two\n')
    expect(first).toBe(0n)
    expect(await all(stream)).toBe('one\ngot two\n')
    expect(await exit).toEqual({ ...child, exit: { code: 7, signal: undefined } })
    expect(await holder.rings()).toEqual([{ number: 0, first: 0n, end: 12n, isClosed: true }])
    const later = await holder.attach(0, 4n)
    expect(await all(later.stream)).toBe('got two\n')
  })

  it('is found again, with its children', async () => {
    const folder = newFolder()
    const holder = await newHolder(folder)
    const child = await holder.start(sh('daemon', 'log', 'echo text; echo error >&2; exec sleep 1000'))
    holder.disconnect()
    const again = await findHolder(folder)
    if (again === undefined) throw new Error('not found')
    started.splice(0, 1, again)
    expect(again.pid).toBe(holder.pid)
    expect(await again.children()).toEqual([child])
    const exit = nextExit(again)
    await again.kill('daemon', 15)
    expect((await exit).exit).toEqual({ code: undefined, signal: 15 })
    await expect.poll(() => readFileSync(join(folder, 'daemon.log'), 'utf8')).toBe('text\nerror\n')
    await again.end()
    expect(await findHolder(folder)).toBeUndefined()
  })
})
