import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { silentLogger } from '../../../../src/base/log.ts'
import { findHolder, killHolder, startHolder } from '../../../../src/host/instance/holder/start-holder.ts'
import type { Holders } from '../../../../src/host/instance/machine/steps.ts'
import { openKeepers } from '../../../../src/host/migration/keepers.ts'
import { TestHolders } from '../../../support/host/test-holder.ts'

const holders = new TestHolders()
const ID = '0b7e4a52-9c7e-4a63-8f3e-2f3f5d6a7b8c'
const OTHER = '1b7e4a52-9c7e-4a63-8f3e-2f3f5d6a7b8c'

/** The keepers of one state folder, as each of its daemons opens them. */
function place() {
  const stateFolder = holders.newFolder()
  const memory = join(stateFolder, 'memory')
  writeFileSync(memory, 'memory of a guest')
  let starts = 0
  const open = (other: Partial<Holders> = {}) =>
    openKeepers({
      stateFolder,
      log: silentLogger(),
      holders: {
        start: async (folder) => {
          starts += 1
          // For the end of the test, by a connection of its own.
          const holder = await startHolder(folder, holders.program)
          holders.endLater(await startedAt(folder))
          return holder
        },
        find: findHolder,
        kill: killHolder,
        ...other,
      },
    })
  const folderOf = (id: string) => join(stateFolder, 'keepers', id)
  return { open, memory, folderOf, starts: () => starts, stateFolder }
}

async function startedAt(folder: string) {
  const holder = await findHolder(folder)
  if (holder === undefined) throw new Error(`${folder}: no holder`)
  return holder
}

/** What a process of an instance gets from the socket. */
async function given(socket: string): Promise<string> {
  const holder = await holders.start()
  const argv = ['/bin/cat', '/proc/self/fd/3'] as const
  await holder.start({ name: 'a', output: 'console', argv, walls: [`memory=3:${socket}`] })
  const { stream } = await holder.attach(0, 0n)
  const chunks: Buffer[] = []
  for await (const chunk of stream) chunks.push(chunk)
  return String(Buffer.concat(chunks))
}

describe('keepers', () => {
  it('are one for each saved machine, however many ask at once, and for the next daemon too', async () => {
    const { open, memory, starts } = place()
    const keepers = open()
    const sockets = await Promise.all(Array.from({ length: 5 }, () => keepers.keep(ID, memory)))
    expect(new Set(sockets).size).toBe(1)
    writeFileSync(memory, 'later')
    expect(await open().keep(ID, memory)).toBe(sockets[0])
    expect(starts()).toBe(1)
    expect(await given(sockets[0] ?? '')).toBe('memory of a guest')
  })

  it('end with their saved machine, and when that has gone while no daemon ran', async () => {
    const { open, memory, folderOf, stateFolder } = place()
    const keepers = open()
    await Promise.all([ID, OTHER].map((id) => keepers.keep(id, memory)))
    await keepers.end(ID)
    expect(await findHolder(folderOf(ID))).toBeUndefined()
    expect(readdirSync(join(stateFolder, 'keepers'))).toEqual([OTHER])
    await keepers.end(ID)
    await open().endOthers(async () => new Set([OTHER]))
    expect(readdirSync(join(stateFolder, 'keepers'))).toEqual([OTHER])
    await open().endOthers(async () => new Set())
    expect(await findHolder(folderOf(OTHER))).toBeUndefined()
    expect(readdirSync(join(stateFolder, 'keepers'))).toEqual([])
  })

  it('are made again after their death, and where a daemon died before one had its memory', async () => {
    const { open, memory, folderOf, starts } = place()
    await open().keep(ID, memory)
    process.kill((await startedAt(folderOf(ID))).pid, 'SIGKILL')
    await killHolder(folderOf(ID))
    expect(await given(await open().keep(ID, memory))).toBe('memory of a guest')
    expect(starts()).toBe(2)
    mkdirSync(folderOf(OTHER), { recursive: true, mode: 0o700 })
    await holders.start(folderOf(OTHER))
    expect(await given(await open().keep(OTHER, memory))).toBe('memory of a guest')
  })

  it('are killed when they do not answer', async () => {
    const { open, memory, folderOf } = place()
    await open().keep(ID, memory)
    await open({
      find: async () => {
        throw new Error('the holder does not answer')
      },
    }).end(ID)
    expect(await findHolder(folderOf(ID))).toBeUndefined()
    expect(existsSync(folderOf(ID))).toBe(false)
  })

  it('are made again when they do not tell whether they have the memory', async () => {
    const { open, memory, starts } = place()
    await open().keep(ID, memory)
    const mute = open({
      find: async (folder) => {
        const holder = await findHolder(folder)
        const hasSealedMemory = async () => Promise.reject(new Error('the holder does not answer'))
        return holder && Object.assign(holder, { hasSealedMemory })
      },
    })
    expect(await given(await mute.keep(ID, memory))).toBe('memory of a guest')
    expect(starts()).toBe(2)
  })

  it('keep nothing of what is not right', async () => {
    const { open, memory, folderOf } = place()
    await expect(open().keep(ID, `${memory}-not`)).rejects.toMatchObject({ code: 'NOT_FOUND' })
    expect(existsSync(folderOf(ID))).toBe(false)
  })
})
