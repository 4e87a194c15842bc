import { chownSync, mkdirSync, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { silentLogger } from '../../../src/base/log.ts'
import { registerMachine } from '../../../src/client/machines/register.ts'
import { uidClaims } from '../../../src/host/instance/machine/uid-claims.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe('the user of an instance', () => {
  let folder: string
  let stateFolders: string[]

  beforeEach(() => {
    folder = temporaryFolder()
    stateFolders = ['one', 'other'].map((name) => join(folder, name))
    for (const path of stateFolders) mkdirSync(join(path, 'instances'), { recursive: true })
  })

  const open = (index: number, kept: readonly number[] = []) => {
    const claims = { folder: join(folder, 'run/claims'), log: silentLogger() }
    const stateFolder = stateFolders[index] ?? ''
    const uids = uidClaims({ ...claims, stateFolder, range: { first: 1000, count: 4 } })
    uids.keep(kept)
    return uids
  }
  const claimed = () => readdirSync(join(folder, 'run/claims')).map(Number).toSorted()

  it('is of no other daemon of the host', () => {
    const [one, other] = [open(0), open(1)]
    const uids = [one.claim(), other.claim(), one.claim(), other.claim()]
    expect(uids.toSorted()).toEqual([1000, 1001, 1002, 1003])
    expect(() => other.claim()).toThrow('uids: all 4 are used, want more in the configuration')
    one.release(uids[1] ?? 0)
    expect(() => other.claim()).toThrow('uids: all 4 are used')
    other.release(uids[1] ?? 0)
    expect(one.claim()).toBe(uids[1])
  })

  it('stays its own over a death of the daemon, and over a boot of the host', () => {
    const uid = open(0).claim()
    open(0, [uid])
    expect(claimed()).toEqual([uid])
    rmSync(join(folder, 'run/claims'), { recursive: true })
    open(0, [uid])
    expect(claimed()).toEqual([uid])
  })

  it('is free again when a daemon has died before it was recorded, and when a state folder is gone', () => {
    open(0).claim()
    open(0)
    expect(claimed()).toEqual([])
    open(0).claim()
    rmSync(stateFolders[0] ?? '', { recursive: true })
    open(1)
    expect(claimed()).toEqual([])
  })

  it('is claimed in a folder of which runs have another part', () => {
    open(0).claim()
    registerMachine(join(folder, 'run'), 'web').remove()
  })

  it.runIf(process.getuid?.() === 0)('is taken by a folder whose record cannot be read', () => {
    const unreadable = join(stateFolders[0] ?? '', 'instances/unreadable')
    mkdirSync(unreadable)
    chownSync(unreadable, 0, 1002)
    const uids = open(0)
    expect([uids.claim(), uids.claim(), uids.claim()].toSorted()).toEqual([1000, 1001, 1003])
  })

  it('is another one than the last', () => {
    const claims = { folder: join(folder, 'run/claims'), log: silentLogger() }
    const uids = uidClaims({
      ...claims,
      stateFolder: stateFolders[0] ?? '',
      range: { first: 1, count: 2 ** 31 },
    })
    uids.keep([])
    const first = uids.claim()
    uids.release(first)
    expect(uids.claim()).not.toBe(first)
  })
})
