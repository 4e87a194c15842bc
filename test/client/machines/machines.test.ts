import { execFileSync, spawn } from 'node:child_process'
import { on } from 'node:events'
import {
  chmodSync,
  chownSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { describe, expect, it } from 'vitest'
import {
  entryText,
  machinesFolder,
  ownRunner,
  readEntry,
  runningMachines,
} from '../../../src/client/machines/entry.ts'
import { registerMachine } from '../../../src/client/machines/register.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const ADDRESS = { kind: 'hvsock', path: '/tmp/run/vsock.sock', port: 1024 } as const
const isRoot = process.getuid?.() === 0

function newFolder(): string {
  return join(temporaryFolder(), 'machines')
}

/** The entry of an ended process whose pid this process may now have. */
const ENDED = entryText({ pid: process.pid, startTicks: 1, address: undefined })

async function linesUntil(output: Readable, last: string): Promise<readonly string[]> {
  let seen = ''
  for await (const [chunk] of on(output, 'data', { close: ['end'] })) {
    seen += String(chunk)
    if (seen.endsWith(`${last}\n`)) return seen.split('\n').slice(0, -2)
  }
  throw new Error(`the output ended before ${last}: ${seen}`)
}

describe('registerMachine', () => {
  it('takes a free short name, shows the address when it is known, and leaves nothing behind', () => {
    const folder = newFolder()
    const [first, second] = [registerMachine(folder, undefined), registerMachine(folder, undefined)]
    expect([first.name, second.name]).toEqual(['ant', 'bee'])
    expect(runningMachines(folder).map(({ address }) => address)).toEqual([undefined, undefined])
    first.publish(ADDRESS)
    expect(runningMachines(folder)).toEqual([
      { name: 'ant', ...ownRunner(), address: ADDRESS },
      { name: 'bee', ...ownRunner(), address: undefined },
    ])
    first.remove()
    second.remove()
    expect(readdirSync(folder)).toEqual([])
  })

  it('writes an entry that only its user can read, in a form with a version', () => {
    const folder = newFolder()
    const { publish, remove } = registerMachine(folder, 'web')
    publish(ADDRESS)
    const file = join(folder, 'web')
    expect([statSync(folder).mode & 0o777, statSync(file).mode & 0o777]).toEqual([0o700, 0o600])
    const { startTicks } = ownRunner()
    const entry = { version: 1, pid: process.pid, startTicks, address: 'hvsock:///tmp/run/vsock.sock:1024' }
    expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual(entry)
    remove()
  })

  it('refuses the name of a machine that runs with its pid, and takes that of one that has ended', () => {
    const folder = newFolder()
    const { remove } = registerMachine(folder, 'web')
    const refusal = `machine "web": runs already with pid ${process.pid}, want another --name`
    expect(() => registerMachine(folder, 'web')).toThrow(refusal)
    remove()
    writeFileSync(join(folder, 'web'), ENDED)
    registerMachine(folder, 'web').remove()
    expect(readdirSync(folder)).toEqual([])
  })

  it('removes what killed runs have left, and nothing else', () => {
    const folder = newFolder()
    mkdirSync(folder, { mode: 0o700 })
    const noPid = 2 ** 22 + 1
    writeFileSync(join(folder, 'ended'), ENDED)
    writeFileSync(join(folder, `.${noPid}`), ENDED)
    writeFileSync(join(folder, `.${noPid}-ended`), ENDED)
    writeFileSync(join(folder, 'notes'), 'mine')
    writeFileSync(join(folder, 'README'), 'mine')
    registerMachine(folder, undefined).remove()
    expect(readdirSync(folder).toSorted()).toEqual(['README', 'notes'])
  })

  it('overwrites no file that is not an entry', () => {
    const folder = newFolder()
    mkdirSync(folder, { mode: 0o700 })
    for (const name of ['ant', 'web']) writeFileSync(join(folder, name), 'mine')
    expect(() => registerMachine(folder, 'web')).toThrow(
      /web: no entry of a machine, want it removed or another --name/,
    )
    const { name, remove } = registerMachine(folder, undefined)
    remove()
    expect([name, readFileSync(join(folder, 'ant'), 'utf8')]).toEqual(['bee', 'mine'])
  })

  it('neither changes nor removes the entry of another machine that has taken the place of its own', () => {
    const folder = newFolder()
    const { publish, remove } = registerMachine(folder, 'web')
    const other = entryText({ ...ownRunner(), pid: 1, address: ADDRESS })
    writeFileSync(join(folder, 'web'), other)
    expect(() => publish(ADDRESS)).toThrow('the entry web was removed')
    remove()
    expect(readFileSync(join(folder, 'web'), 'utf8')).toBe(other)
  })

  it('changes no folder that others may enter', () => {
    const folder = newFolder()
    mkdirSync(folder)
    chmodSync(folder, 0o755)
    expect(() => registerMachine(folder, undefined)).toThrow(`machines in ${folder}: mode 755, want 700`)
    expect(readdirSync(folder)).toEqual([])
  })

  it('gives a name to one of two runs that begin at once, over the entry of an ended one', async () => {
    const folders = Array.from({ length: 100 }, newFolder)
    for (const folder of folders) {
      mkdirSync(folder, { mode: 0o700 })
      writeFileSync(join(folder, 'web'), ENDED)
    }
    const program = join(import.meta.dirname, 'take-names.ts')
    const runs = [1, 2].map(() =>
      spawn(process.execPath, [program, ...folders], { stdio: ['pipe', 'pipe', 'inherit'] }),
    )
    await Promise.all(runs.map(({ stdout }) => linesUntil(stdout, 'ready')))
    const soon = Date.now() + 20
    for (const { stdin } of runs) stdin.write(`${soon}\n`)
    const taken = (await Promise.all(runs.map(({ stdout }) => linesUntil(stdout, 'done')))).flat()
    for (const { stdin } of runs) stdin.end()
    expect(taken.toSorted()).toEqual(folders.toSorted())
  })
})

describe('readEntry', () => {
  it.each([
    ['an empty file', ''],
    ['a half of an entry', ENDED.slice(0, 20)],
    ['a later version', '{"version":2,"pid":1,"startTicks":1}'],
    ['no pid', '{"version":1}'],
    ['a wrong address', `{"version":1,"pid":${process.pid},"startTicks":1,"address":"carrier://pigeon"}`],
    ['an address that is no text', '{"version":1,"pid":1,"startTicks":1,"address":7}'],
    ['a list', '[1]'],
    ['a long file', ' '.repeat(5000)],
  ])('recognizes that %s is no entry', (_, content) => {
    const folder = temporaryFolder()
    writeFileSync(join(folder, 'web'), content)
    expect([readEntry(folder, 'web')?.kind, runningMachines(folder)]).toEqual(['invalid', []])
  })

  it('follows no link, and waits for no fifo', () => {
    const folder = temporaryFolder()
    writeFileSync(join(folder, '.entry'), entryText({ ...ownRunner(), address: ADDRESS }))
    symlinkSync('.entry', join(folder, 'link'))
    symlinkSync('/nowhere', join(folder, 'dangling'))
    execFileSync('mkfifo', [join(folder, 'fifo')])
    mkdirSync(join(folder, 'folder'))
    expect(['link', 'dangling', 'fifo', 'folder'].map((name) => readEntry(folder, name))).toEqual([
      { kind: 'invalid', reason: 'a symbolic link' },
      { kind: 'invalid', reason: 'a symbolic link' },
      { kind: 'invalid', reason: 'not a regular file' },
      { kind: 'invalid', reason: 'not a regular file' },
    ])
    expect(runningMachines(folder)).toEqual([])
  })

  it.runIf(isRoot)('accepts no entry of another user', () => {
    const folder = temporaryFolder()
    const file = join(folder, 'web')
    writeFileSync(file, entryText({ ...ownRunner(), address: ADDRESS }))
    chownSync(file, 65534, 65534)
    expect(readEntry(folder, 'web')).toEqual({ kind: 'invalid', reason: 'owned by user 65534' })
  })

  it('recognizes an ended process by its start time, and finds no file for an absent name', () => {
    const folder = temporaryFolder()
    writeFileSync(join(folder, 'web'), ENDED)
    expect([readEntry(folder, 'web'), readEntry(folder, 'absent')]).toEqual([
      { kind: 'ended', pid: process.pid },
      undefined,
    ])
  })
})

describe('machinesFolder', () => {
  it('is that of the system for root and that of the session for others', () => {
    const own = isRoot ? '/run/microvm' : '/run/user/7/microvm'
    expect(machinesFolder({ XDG_RUNTIME_DIR: '/run/user/7' })).toBe(own)
    expect(machinesFolder({ MICROVM_REGISTRY: '/x', XDG_RUNTIME_DIR: '/run/user/7' })).toBe('/x')
  })

  it('may be absent', () => {
    expect(runningMachines('/nowhere/at/all')).toEqual([])
  })
})
