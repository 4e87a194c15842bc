import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { installedPackages } from '../../../scripts/setup/debian.mjs'
import { whatIsMissing } from '../../../scripts/setup/machine.mjs'
import { holdsAll } from '../../../scripts/setup/npm.mjs'
import { projectRoot } from '../../../src/build/project.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { freePorts } from '../../support/wing/controller/etcd.ts'
import { hostAuthority } from '../../support/wing/moves/host-certificates.ts'

const folder = temporaryFolder()
const [port = 0] = await freePorts(1)

describe('installedPackages', () => {
  it('counts what is installed, not what was removed', () => {
    const status = [
      'Package: qemu\nStatus: install ok installed\nVersion: 1\n',
      'Package: umoci\nStatus: deinstall ok config-files\nVersion: 1\n',
      'Package: zstd\nStatus: hold ok installed\n',
    ].join('\n')
    expect([...installedPackages(status)]).toEqual(['qemu', 'zstd'])
  })
})

describe('holdsAll', () => {
  const wanted = {
    '': { version: '0' },
    'node_modules/a': { version: '1', integrity: 'x' },
    'node_modules/b': { version: '2', integrity: 'y', optional: true },
  }

  it('lets optional packages be absent', () => {
    expect(holdsAll(wanted, { 'node_modules/a': { version: '1', integrity: 'x' } })).toBe(true)
  })

  it.each([
    ['a missing package', {}],
    ['another version', { 'node_modules/a': { version: '2', integrity: 'x' } }],
    ['another content', { 'node_modules/a': { version: '1', integrity: 'z' } }],
  ])('notices %s', (_name, present) => {
    expect(holdsAll(wanted, present)).toBe(false)
  })
})

describe('whatIsMissing', () => {
  const fine = { nodeVersion: '20.20.2', platform: 'linux', arch: 'x64', uid: 0, path: folder }

  it('finds nothing on a machine that has all', () => {
    for (const program of ['apt-get', 'npm']) writeFileSync(join(folder, program), '')
    expect(whatIsMissing(fine)).toBeUndefined()
  })

  it.each([
    [{ nodeVersion: '18.20.4' }, 'Node.js: version 18.20.4, want 20 or newer'],
    [{ arch: 'arm64' }, 'want Linux on x86-64'],
    [{ platform: 'darwin' }, 'want Linux on x86-64'],
    [{ uid: 1000 }, 'sudo'],
    [{ path: '/nowhere' }, 'apt-get: not found, want Debian 12'],
  ])('names the remedy for %j', (change, sentence) => {
    expect(whatIsMissing({ ...fine, ...change })).toContain(sentence)
  })
})

describe('./microvm', () => {
  const microvm = join(projectRoot, 'microvm')
  const run = (args: readonly string[]) => {
    const { status, stdout, stderr } = spawnSync(microvm, args, { encoding: 'utf8' })
    return { status, stdout, lines: stderr.split('\n').filter((line) => line !== '') }
  }

  it.each([
    [['fly'], 'unknown command fly'],
    [['run', '--fly'], 'unknown option --fly'],
    [['run', '-it', 'sh'], '-it: stdin is no terminal, want one, or -i alone for a pipe or a file'],
    [['run', '--append', 'a\nb'], '--append: the kernel command line is one line'],
    [['run', '--rootfs', '/nowhere/at/all'], '--rootfs /nowhere/at/all: no such file or directory'],
    [['run', '--image', '/nowhere/at/all'], '--image /nowhere/at/all: no such file'],
    [['run', '--kernel', '/nowhere/at/all'], '--kernel /nowhere/at/all: no such file'],
    [['run', '--image', '/tmp'], '--image /tmp: not a file, want a raw disk image'],
    [['ensure', '/nowhere/at/all'], 'ensure: /nowhere/at/all: no such file'],
    [['plug', 'web', 'data', '/tmp'], 'plug: /tmp: a folder, want a file'],
    [['daemon', '--config', '/nowhere/at/all'], 'daemon: /nowhere/at/all: no such file'],
    // Not even root may read this file.
    [['run', '--image', '/proc/sys/vm/compact_memory'], 'compact_memory: cannot be read: EACCES'],
  ])('refuses %j with one line and status 2', (args, sentence) => {
    const { status, stdout, lines } = run(args)
    expect({ status, stdout, lines: lines.length }).toEqual({ status: 2, stdout: '', lines: 1 })
    expect(lines[0]).toContain(sentence)
  })

  it('says in one line that no daemon runs, with status 125', () => {
    const { status, stdout, lines } = run(['ps', '--socket', '/nowhere/admin.sock'])
    expect([status, stdout, lines]).toEqual([
      125,
      '',
      [expect.stringContaining('start it with ./microvm daemon')],
    ])
  })

  const authority = hostAuthority('hosts', ['controller'])
  const places = ['--etcd', '127.0.0.1:1', '--listen', `127.0.0.1:${port}`]
  const files = [
    ...['--ca', authority.ca, '--cert', join(authority.folder, 'controller.pem')],
    ...['--key', join(authority.folder, 'controller.key')],
  ]

  it.each([
    ['daemon', ['--mock', '--state', join(folder, 'state')], '--max-semi-space-size=1'],
    ['controller', [...places, ...files], '--optimize-for-size'],
  ])('starts the %s with what keeps it idle and small', async (name, words, flag) => {
    const server = spawn(microvm, [name, ...words], { stdio: ['ignore', 'ignore', 'pipe'] })
    try {
      const [line] = await once(server.stderr, 'data')
      const { pid } = JSON.parse(String(line).split('\n')[0] ?? '')
      const started = readFileSync(`/proc/${pid}/cmdline`, 'latin1').split('\0')
      expect(started).toEqual(expect.arrayContaining(['--no-maglev', '--no-memory-reducer', flag, name]))
      expect(readFileSync(`/proc/${pid}/environ`, 'latin1')).toContain('NODE_COMPILE_CACHE=')
    } finally {
      const ended = once(server, 'exit')
      server.kill('SIGTERM')
      expect(await ended).toEqual([0, null])
    }
  })

  it('checks this host without the npm packages', () => {
    const { stdout, lines } = run(['doctor', '--json', '--socket', '/nowhere/admin.sock'])
    expect(lines).toEqual([])
    expect(JSON.parse(stdout.split('\n')[0] ?? '')).toMatchObject({ name: 'package qemu-system-x86' })
  })

  it('shows help on stdout with status 0', () => {
    expect(run(['--help'])).toMatchObject({ status: 0, lines: [] })
    expect(run(['run', '--help']).stdout).toContain('--rootfs')
  })
})
