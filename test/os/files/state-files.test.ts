import { mkdirSync, readdirSync, statfsSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeEach, describe, expect, it } from 'vitest'
import { linuxStateFiles, type StateFiles } from '../../../src/os/files/state-files.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe('state files', () => {
  let root: string
  let files: StateFiles

  beforeEach(() => {
    root = join(temporaryFolder(), 'state')
    files = linuxStateFiles(root)
  })

  it('makes files and their folders, for the agent alone', () => {
    files.write('containers/c1/record', Buffer.from('a'))
    files.write('containers/c1/record', Buffer.from('b'))
    expect(Buffer.from(files.read('containers/c1/record') ?? [])).toEqual(Buffer.from('b'))
    expect(statSync(root).mode & 0o777).toBe(0o700)
    expect(statSync(join(root, 'containers/c1/record')).mode & 0o777).toBe(0o600)
    expect(readdirSync(join(root, 'containers/c1'))).toEqual(['record'])
  })

  it('lists no file whose writing did not end', () => {
    files.write('b', new Uint8Array())
    files.write('a', new Uint8Array())
    writeFileSync(join(root, 'c.new'), 'half')
    expect(files.list('')).toEqual(['a', 'b'])
  })

  it('tells what is not there', () => {
    expect(files.read('a')).toBeUndefined()
    expect(files.list('folder')).toEqual([])
    files.remove('a')
  })

  it('removes files and folders', () => {
    files.write('containers/c1/record', new Uint8Array())
    files.write('oom', new Uint8Array())
    files.remove('containers/c1')
    expect(files.list('containers')).toEqual([])
    files.remove('')
    expect(files.list('')).toEqual([])
    expect(readdirSync(root)).toEqual([])
  })

  it('tells what is there, and how much room there is', () => {
    expect(files.room().bytes).toBeGreaterThan(2 ** 40)
    files.write('oom', new Uint8Array())
    expect([files.has('oom'), files.has('policy')]).toEqual([true, false])
    expect(files.room().bytes).toBe(Number(statfsSync(root).bavail) * statfsSync(root).bsize)
  })

  it('names the file that cannot be written', () => {
    mkdirSync(join(root, 'oom.new'), { recursive: true })
    expect(() => files.write('oom', new Uint8Array())).toThrow(`write ${root}/oom: EISDIR`)
  })
})
