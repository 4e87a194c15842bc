import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { Holder } from '../../../../src/host/instance/holder/holder.ts'
import { readRing } from '../../../../src/host/instance/holder/holder-files.ts'
import {
  findHolder,
  killHolder,
  prepareHolder,
  startHolder,
} from '../../../../src/host/instance/holder/start-holder.ts'
import {
  connected,
  nextExit,
  readAll,
  sh,
  statusNumber,
  TestHolders,
} from '../../../support/host/test-holder.ts'
import { processes, processesIn, processState } from '../../../support/processes.ts'
import { buildDyingHolder } from '../../../support/vminit/compiled.ts'

const GIB = 2 ** 30

const holders = new TestHolders()

/** A program that runs the holder behind `words`, such as `unshare --user`. */
function wrapped(...words: readonly string[]): string {
  const path = join(holders.newFolder(), 'wrapper')
  writeFileSync(path, `#!/bin/sh\nexec ${words.join(' ')} ${holders.program} "$@"\n`)
  chmodSync(path, 0o755)
  return path
}

async function attached(folder: string, count: number): Promise<Socket[]> {
  return await Promise.all(
    Array.from({ length: count }, async () => {
      const socket = await connected(join(folder, 'holder.sock'))
      socket.write('attach 0 0\n')
      return socket
    }),
  )
}

/** What the holder answers to raw bytes, without the greeting. */
async function answers(folder: string, bytes: string | Buffer): Promise<string> {
  const socket = await connected(join(folder, 'holder.sock'))
  socket.end(bytes)
  return String(await readAll(socket)).replace(/^holder 1 .*\n/, '')
}

function openFiles({ pid }: Holder): number {
  return readdirSync(`/proc/${pid}/fd`).length
}

function heapKiB(pid: number): number {
  const smaps = readFileSync(`/proc/${pid}/smaps`, 'utf8')
  return Number(smaps.match(/\[heap\]\nSize: +\d+ kB[^[]*?Rss: +(\d+) kB/)?.[1] ?? 0)
}

describe('holder: that hangs', () => {
  it('is killed with its processes by its folder, and no other', async () => {
    const [folder, otherFolder] = [holders.newFolder(), holders.newFolder()]
    const [holder, other] = [
      await startHolder(folder, holders.program),
      await startHolder(otherFolder, holders.program),
    ]
    const { pid } = await holder.start({ name: 'sleep', argv: ['sleep', '1000'], output: 'log' })
    process.kill(holder.pid, 'SIGSTOP')
    await killHolder(folder)
    expect([holder.pid, pid].map((each) => processState(each)?.state ?? 'Z')).toEqual(['Z', 'Z'])
    expect(await findHolder(folder)).toBeUndefined()
    await other.end()
  })
})

describe('holder: its start', () => {
  it('refuses a folder that has one', async () => {
    const folder = holders.newFolder()
    await holders.start(folder)
    await expect(holders.start(folder)).rejects.toMatchObject({ code: 'ALREADY_EXISTS' })
    await expect(holders.start(join(folder, 'none'))).rejects.toThrow('none: ENOENT')
  })

  it('touches nothing before it is to hold, and ends when it is not wanted any more', async () => {
    const folder = join(holders.newFolder(), 'none')
    const own = () => processesIn(join(folder, '..'))
    const waiting = prepareHolder(folder, holders.program)
    await expect.poll(own).toHaveLength(1)
    process.kill(own()[0]?.pid ?? 0, 'SIGSTOP')
    await waiting[Symbol.asyncDispose]()
    await expect.poll(own).toEqual([])
    expect(existsSync(folder)).toBe(false)
  })

  it('is begun again when it was killed while it waited', async () => {
    const folder = holders.newFolder()
    const waiting = prepareHolder(folder, holders.program)
    const own = () => processesIn(join(folder, '..')).filter(({ words }) => words.includes(folder))
    await expect.poll(own).not.toEqual([])
    for (const { pid } of own()) process.kill(pid, 'SIGKILL')
    await expect.poll(own).toEqual([])
    await expect.poll(async () => holders.endLater(await waiting.hold([])).pid).toBeGreaterThan(0)
  })

  it.each([true, false])('ends with its starter only on a leash (%s)', async (isLeashed) => {
    const folder = holders.newFolder()
    const holder = await prepareHolder(folder, holders.program).hold([], isLeashed)
    const child = await holder.start(sh('sleep', 'log', 'exec sleep 1000'))
    holder.disconnect()
    const isThere = () => processState(child.pid) !== undefined
    if (isLeashed) return await expect.poll(isThere).toBe(false)
    holders.endLater((await findHolder(folder)) ?? expect.fail('no holder'))
    expect(isThere()).toBe(true)
  })

  it('ends what did not become a holder', async () => {
    const folder = join(holders.newFolder(), 'none')
    const waiting = prepareHolder(folder, holders.program)
    await expect(waiting.hold([])).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    await expect.poll(() => processesIn(join(folder, '..'))).toEqual([])
  })

  it.each([
    ['of another version', ['holder 2 1 1\n'], 'FAILED_PRECONDITION', /version 2, want 1$/],
    [
      'of a process that is another by now',
      ['holder 1 1 1\n'],
      'FAILED_PRECONDITION',
      /1 is not the holder$/,
    ],
    ['that is an error, in pieces', ['error NOT_FOUND no', '%20room\n'], 'NOT_FOUND', /^holder: no room$/],
    ['of another program', ['HTTP/1.1 400\n'], 'FAILED_PRECONDITION', /version 400, want 1$/],
    ['that has no words', ['holder %zz 1 2\n'], 'UNAVAILABLE', /^holder: the connection has ended$/],
    ['that breaks off', ['holder 1'], 'UNAVAILABLE', /^holder: the connection has ended$/],
  ])('is not taken for one by a greeting %s', async (_, pieces, code, message) => {
    const folder = holders.newFolder()
    const server = createServer(async (socket) => {
      for (const piece of pieces) {
        socket.write(piece)
        await new Promise((resolve) => setTimeout(resolve, 5))
      }
      socket.end()
    })
    server.listen(join(folder, 'holder.sock'))
    onTestFinished(() => void server.close())
    await once(server, 'listening')
    await expect(findHolder(folder)).rejects.toMatchObject({ code, message: expect.stringMatching(message) })
  })

  it('ends with its starter until it has greeted', async () => {
    const folder = join(holders.newFolder(), 'own')
    mkdirSync(folder)
    const { stdin } = spawn(holders.program, [folder], { stdio: ['pipe', 'ignore', 'ignore'] })
    stdin.write('hold\n')
    stdin.destroy()
    await expect.poll(() => existsSync(join(folder, 'holder.sock'))).toBe(true)
    await expect.poll(() => processesIn(join(folder, '..'))).toEqual([])
  })

  it('is given up while it is awaited', async () => {
    const folder = join(holders.newFolder(), 'own')
    mkdirSync(folder)
    const waiting = prepareHolder(folder, holders.program)
    const held = waiting.hold([])
    const refused = expect(held).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    await waiting[Symbol.asyncDispose]()
    await refused
    await expect.poll(() => processesIn(join(folder, '..'))).toEqual([])
  })

  it('tells that its starter has no descriptor left', async () => {
    await holders.start()
    const folder = holders.newFolder()
    const files = /Max open files +(\d+)/.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1]
    const limit = (most = '') => execFileSync('prlimit', ['--pid', String(process.pid), `--nofile=${most}:`])
    const lowest = Array.from({ length: 32 }, () => openSync('/dev/null', 'r'))
    limit(String(Math.max(...lowest) + 1))
    try {
      const started = prepareHolder(folder, holders.program).hold([])
      await expect(started).rejects.toThrow(`holder of ${folder}: open a socket pair: EMFILE`)
    } finally {
      for (const fd of lowest) closeSync(fd)
      limit(files)
    }
  })

  it('replaces the socket of one that was killed', async () => {
    const folder = holders.newFolder()
    const holder = await holders.start(folder)
    process.kill(holder.pid, 'SIGKILL')
    await holder.ended
    expect((await holders.start(folder)).pid).not.toBe(holder.pid)
  })

  it('tells that no PID namespace can be made', async () => {
    const program = wrapped(
      'unshare --user --map-root-user sh -c',
      `'echo 0 > /proc/sys/user/max_pid_namespaces; exec "$0" "$@"'`,
    )
    const start = startHolder(holders.newFolder(), program)
    await expect(start).rejects.toThrow('PID namespace: cannot be made: ENOSPC')
    await expect(start).rejects.toMatchObject({ code: 'FAILED_PRECONDITION' })
  })

  it('tells that /proc is of another PID namespace', async () => {
    const start = startHolder(holders.newFolder(), wrapped('unshare --pid --fork'))
    await expect(start).rejects.toMatchObject({ code: 'FAILED_PRECONDITION' })
  })

  it('serves no other user', async () => {
    const folder = holders.newFolder()
    await holders.start(folder)
    for (const path of [join(folder, '..'), folder]) chmodSync(path, 0o755)
    chmodSync(join(folder, 'holder.sock'), 0o666)
    const script = `import socket; s = socket.socket(socket.AF_UNIX); s.connect("${folder}/holder.sock"); print(s.recv(9))`
    const { stdout } = spawnSync('setpriv', [
      '--reuid',
      '65534',
      '--clear-groups',
      '/usr/bin/python3',
      '-c',
      script,
    ])
    expect(String(stdout)).toBe("b''\n")
  })
})

describe('holder: bad input', () => {
  it('answers each wrong line with an error, and goes on', async () => {
    const folder = holders.newFolder()
    const holder = await holders.start(folder)
    const lines = [
      ['', 'UNIMPLEMENTED command%20"":%20unknown'],
      ['mumble', 'UNIMPLEMENTED'],
      ['Watch', 'UNIMPLEMENTED'],
      ['\0watch', 'INVALID_ARGUMENT'],
      ['watch%00', 'INVALID_ARGUMENT'],
      ['watch%', 'INVALID_ARGUMENT'],
      ['watch%2', 'INVALID_ARGUMENT'],
      ['watch%zz', 'INVALID_ARGUMENT'],
      ['watch more', 'INVALID_ARGUMENT'],
      ['start', 'INVALID_ARGUMENT'],
      ['start a log', 'INVALID_ARGUMENT'],
      ['start  log true', 'INVALID_ARGUMENT'],
      [`start ${'a'.repeat(33)} log true`, 'INVALID_ARGUMENT'],
      ['start %2e%2e%2fa log true', 'INVALID_ARGUMENT'],
      ['start a file true', 'INVALID_ARGUMENT'],
      ['walled a log network=none true', 'INVALID_ARGUMENT'],
      ['walled a log network=none --', 'INVALID_ARGUMENT'],
      ['walled a file -- true', 'INVALID_ARGUMENT'],
      ['start a log ', 'NOT_FOUND'],
      [`start a log true${' x'.repeat(3000)}`, 'INVALID_ARGUMENT'],
      ['kill a 9', 'NOT_FOUND'],
      ['attach 0 0', 'NOT_FOUND'],
      ['attach 4294967296 0', 'INVALID_ARGUMENT'],
      ['attach -1 0', 'INVALID_ARGUMENT'],
      ['close 18446744073709551616', 'INVALID_ARGUMENT'],
      ['listen x 0', 'INVALID_ARGUMENT'],
      [`listen ${'x'.repeat(108)} 1`, 'INVALID_ARGUMENT'],
      ['listen none/x 1', 'NOT_FOUND'],
    ] as const
    for (const [line, error] of lines) {
      expect(await answers(folder, `${line}\nwatch\n`), line).toMatch(
        new RegExp(`^error ${error}.*\\nok\\n$`),
      )
    }
    expect(await holder.rings()).toEqual([])
    expect((await holder.children()).filter(({ exit }) => exit === undefined)).toEqual([])
  })

  it('refuses an endless line, and knows numbers from their neighbours', async () => {
    const folder = holders.newFolder()
    const holder = await holders.start(folder)
    expect(await answers(folder, Buffer.alloc(128 << 10, 'x'))).toMatch(
      /^error INVALID_ARGUMENT line:%20longer/,
    )
    await holder.start(sh('a', 'console', 'echo text; sleep 1000'))
    await expect.poll(async () => (await holder.rings())[0]?.end).toBe(5n)
    expect(await answers(folder, 'attach 0 18446744073709551616\n')).toMatch(/^error INVALID_ARGUMENT/)
    expect(await answers(folder, 'attach 0 18446744073709551615\n')).toMatch(/^error OUT_OF_RANGE/)
    expect(await answers(folder, 'kill a 65\nkill a 0\n')).toMatch(/^error INVALID_ARGUMENT.*\nok\n$/)
    const long = 'x'.repeat(120_000)
    await expect(holder.listen(long, 1)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    await expect(holder.listen(`${long}${long}`, 1)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' })
    expect(await holder.children()).toHaveLength(1)
  })

  it('survives random bytes, and clients that leave at any moment', async () => {
    const folder = holders.newFolder()
    const holder = await holders.start(folder)
    await holder.start(sh('a', 'console', 'seq 1 100000; cat > /dev/null'))
    await holder.rings()
    const before = openFiles(holder)
    for (let round = 0; round < 200; round++) {
      const socket = await connected(join(folder, 'holder.sock'))
      const start = ['', 'attach 0 0\n', 'rings\nchildren\nwatch\n'.repeat(50)][round % 3]
      const random = Buffer.from(
        Array.from({ length: 999 }, (_, index) => (index * round * 31 + index) % 256),
      )
      socket.write(Buffer.concat([Buffer.from(start ?? ''), random]))
      if (round % 2 === 0) await holder.children()
      socket.destroy()
    }
    await expect.poll(() => openFiles(holder)).toBe(before)
  })
})

describe('holder: limits', () => {
  it('keeps its memory and its guest when 1,000 clients never read 1 GiB', async () => {
    const folder = holders.newFolder()
    const holder = await holders.start(folder)
    const heap = heapKiB(holder.pid)
    const exit = nextExit(holder)
    await holder.start(sh('qemu', 'console', `read go; head -c ${GIB} /dev/zero`))
    const idle = await attached(folder, 1000)
    for (const socket of idle) socket.pause()
    const { stream } = await holder.attach(0, 0n)
    stream.resume()
    stream.write('go\n')
    expect((await exit).exit?.code).toBe(0)
    await expect
      .poll(async () => (await holder.rings())[0])
      .toMatchObject({ end: BigInt(GIB), isClosed: true })
    // All that is resident: anonymous memory, and pages of the program.
    expect(statusNumber(holder.pid, 'VmHWM')).toBeLessThanOrEqual(1024)
    expect(heapKiB(holder.pid)).toBe(heap)
    for (const socket of idle) socket.destroy()
    expect((await readAll((await holder.attach(0, 0n)).stream)).length).toBe(1 << 20)
  })

  it('refuses one client more than it has room for', async () => {
    const folder = holders.newFolder()
    const holder = await holders.start(folder)
    await holder.start(sh('qemu', 'console', 'sleep 1000'))
    const clients = await attached(folder, 1024)
    await Promise.all(clients.map((socket) => once(socket, 'readable')))
    await expect(holder.attach(0, 0n)).rejects.toMatchObject({ code: 'RESOURCE_EXHAUSTED' })
    clients[0]?.destroy()
    await expect.poll(async () => (await holder.attach(0, 0n).catch(() => undefined))?.first).toBe(0n)
    for (const socket of clients) socket.destroy()
  })

  it('waits for descriptors when it has none left', async () => {
    const folder = holders.newFolder()
    const holder = await holders.start(folder, wrapped('prlimit --nofile=64:64'))
    const sockets = await Promise.all(
      Array.from({ length: 100 }, () => connected(join(folder, 'holder.sock'))),
    )
    await expect.poll(() => openFiles(holder)).toBe(64)
    await expect(holder.start(sh('x', 'log', 'true'))).rejects.toThrow('EMFILE')
    await expect(holder.listen(join(folder, 'port'), 1)).rejects.toMatchObject({ code: 'RESOURCE_EXHAUSTED' })
    for (const socket of sockets) socket.destroy()
    await expect.poll(async () => (await findHolder(folder))?.pid).toBe(holder.pid)
    await holder.listen(join(folder, 'port'), 1)
  })

  it('raises the limit of descriptors, also for its children', async () => {
    const folder = holders.newFolder()
    const holder = await holders.start(folder, wrapped('prlimit --nofile=100:2000'))
    const exit = nextExit(holder)
    await holder.start(sh('a', 'log', 'ulimit -Sn'))
    await exit
    await expect.poll(() => readFileSync(join(folder, 'a.log'), 'utf8')).toBe('2000\n')
    expect(readFileSync(`/proc/${holder.pid}/limits`, 'utf8')).toMatch(/Max open files +2000 +2000/)
  })

  it('tells that the disk has no room for a ring', async () => {
    await onSmallDisk('800k', async (folder) => {
      const holder = await holders.start(folder)
      await expect(holder.start(sh('a', 'console', 'true'))).rejects.toThrow('start a: /bin/sh: ENOSPC')
      await holder.listen(join(folder, 'one'), 1)
      await holder.listen(join(folder, 'two'), 2)
      await expect(holder.listen(join(folder, 'three'), 3)).rejects.toMatchObject({
        code: 'RESOURCE_EXHAUSTED',
      })
      expect((await holder.rings()).map(({ number }) => number)).toEqual([1, 2])
      expect(readdirSync(folder)).not.toContain('three')
      await holder.end()
    })
  })

  it('has 16 children, of which the one that ended first makes room', async () => {
    const holder = await holders.start()
    for (let index = 0; index < 16; index++) await holder.start(sh(`c${index}`, 'log', 'exec sleep 1000'))
    await expect(holder.start(sh('more', 'log', 'true'))).rejects.toMatchObject({
      code: 'RESOURCE_EXHAUSTED',
    })
    for (const name of ['c7', 'c3']) {
      const exit = nextExit(holder)
      await holder.kill(name, 9)
      await exit
    }
    await holder.start(sh('more', 'log', 'exec sleep 1000'))
    const names = (await holder.children()).map(({ name }) => name)
    expect(names).toContain('c3')
    expect(names).not.toContain('c7')
  })

  it('keeps the last parts of a long log', async () => {
    const folder = holders.newFolder()
    const holder = await holders.start(folder)
    const exit = nextExit(holder)
    await holder.start(sh('a', 'log', 'seq 1 1000000'))
    await exit
    const sizes = () => ['a.log', 'a.log.1'].map((name) => statSync(join(folder, name)).size)
    await expect.poll(() => readFileSync(join(folder, 'a.log'), 'utf8')).toMatch(/999999\n1000000\n$/)
    for (const size of sizes()) expect(size).toBeLessThanOrEqual(512 << 10)
  })

  it('reaps orphans', async () => {
    const holder = await holders.start()
    const exit = nextExit(holder)
    await holder.start(sh('a', 'log', 'for i in $(seq 1 2000); do (true &) ; done'))
    await exit
    await expect.poll(() => processes().filter(({ parent }) => parent === holder.pid)).toEqual([])
  })

  it('has 2,048 rings within 1 MB', async () => {
    await onSmallDisk('2g', async (folder) => {
      const holder = await holders.start(folder)
      await listenMany(holder, folder, 2048)
      await expect(holder.listen(join(folder, 'more'), 5000)).rejects.toMatchObject({
        code: 'RESOURCE_EXHAUSTED',
      })
      expect(await holder.rings()).toHaveLength(2048)
      expect(statusNumber(holder.pid, 'VmHWM')).toBeLessThanOrEqual(1024)
      await holder.end()
    })
  })
})

/** Outside the temporary folders, which other runs sweep: a mount would stop them. */
async function onSmallDisk(size: string, use: (folder: string) => Promise<void>): Promise<void> {
  const folder = mkdtempSync('/run/holder-')
  spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${size}`, 'none', folder])
  try {
    await use(folder)
  } finally {
    spawnSync('umount', ['-l', folder])
    rmdirSync(folder)
  }
}

async function listenMany(holder: Holder, folder: string, count: number): Promise<void> {
  for (let number = 1; number <= count; number += 256) {
    await Promise.all(
      Array.from({ length: 256 }, (_, index) =>
        holder.listen(join(folder, `p${number + index}`), number + index),
      ),
    )
  }
}

describe('holder: a dead one', () => {
  it('leaves whole rings when it dies between a write and the header of the ring', async () => {
    const program = await buildDyingHolder()
    for (const writes of [1, 2, 16, 17, 18, 19, 33, 34, 35, 36, 100]) {
      const folder = holders.newFolder()
      writeFileSync(join(folder, 'die-at'), String(writes))
      const holder = await holders.start(folder, program)
      await holder.start(sh('a', 'console', 'exec seq 1 100000000'))
      await holder.ended
      const { first, end, bytes } = await readRing(folder, 0)
      expect(bytes.length).toBe(Math.min(Number(end), 1 << 20))
      expect(first).toBe(end - BigInt(bytes.length))
      const lines = bytes.toString().split('\n').slice(1, -1).map(Number)
      expect(lines.every((line, index) => line === (lines[0] ?? 0) + index)).toBe(true)
    }
  })
})

describe('holder: an ordinary user', () => {
  it('gets a user namespace with it', async () => {
    const folder = holders.newFolder()
    for (const path of [join(folder, '..'), folder]) chmodSync(path, 0o777)
    const holder = await holders.start(folder, wrapped('setpriv --reuid 65534 --clear-groups'))
    expect(readFileSync(`/proc/${holder.pid}/status`, 'utf8')).toMatch(/NSpid:\s+\d+\s+1\n/)
  })
})
