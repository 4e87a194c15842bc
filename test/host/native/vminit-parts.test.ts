import { existsSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { buildParts } from '../../support/vminit/compiled.ts'
import { commandRecord, Kind } from '../../support/vminit/record.ts'
import { run } from '../../support/vminit/supervised.ts'

let parts: string

beforeAll(async () => {
  parts = await buildParts()
})

/** The same numbers for the same seed, from 0 to `limit` - 1. */
function randomNumbers(seed: number): (limit: number) => number {
  let state = seed
  return (limit) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return Math.floor((state / 2 ** 32) * limit)
  }
}

describe('the build of these tests', () => {
  it('reports a write behind the end of allocated memory', async () => {
    const { status, stderr } = await run([parts, 'overrun'])
    expect(status).not.toBe(0)
    expect(stderr).toMatch(/runtime error|AddressSanitizer/)
  })
})

const PMEM = '/dev/pmem0p1|ext4|dax,data=ordered,errors=remount-ro|ro'

describe('the kernel command line', () => {
  it.each([
    ['', '|||ro'],
    ['quiet root=/dev/vda rootfstype=erofs ro', '/dev/vda|erofs||ro'],
    ['root=/dev/vda rw rootflags=noload,data=journal\n', '/dev/vda||noload,data=journal|rw'],
    ['root=/dev/vda rw root=/dev/vdb ro', '/dev/vdb|||ro'],
    ['agent.log="a root=/dev/vdz b" rootflags="a b" "root=/dev/vda"', '/dev/vda||a,b|ro'],
    ['root=/dev/pmem0p1 rootflags=dax,data=ordered,errors=remount-ro ro rootfstype=ext4', PMEM],
    ['root=/dev/pmem0p1 rw rootflags="dax,data=ordered,errors=remount-ro ro" rootfstype=ext4', PMEM],
    ['root=/dev/vda1 rw rootflags=ro rootfstype=erofs', '/dev/vda1|erofs||ro'],
    ['rootflags=,,rw,,a,ro,,b,rw,', '||a,b|rw'],
    ['rootwait=5 console=hvc0 console=hvc1', '|||ro|5 s|hvc'],
    ['rootwait rootdelay=1 console=ttyS0 console=hv', '|||ro'],
    ['noroot=/dev/vda rows xroot=1', '|||ro'],
  ])('%j has the root options %j', async (line, options) => {
    expect((await run([parts, 'boot-options', line])).stdout).toBe(`${options}\n`)
  })

  it('logs a value that is too long', async () => {
    const { stderr } = await run([parts, 'boot-options', `root=/dev/${'x'.repeat(300)}`])
    expect(stderr).toMatch(/^vminit: kernel command line: root=\/dev\/x+… is longer than 255 bytes\n$/)
  })
})

describe('a waiting time on the kernel command line', () => {
  it.each(['', '-1', '3601', '1s', '99999999999999999999'])('of %j seconds is ignored', async (value) => {
    const { stdout, stderr } = await run([parts, 'boot-options', `rootwait=${value}`])
    expect(stdout).toBe('|||ro\n')
    expect(stderr).toMatch(/^vminit: kernel command line: rootwait=\S*: want seconds from 0 to 3600\n$/)
  })
})

describe('a hostile kernel command line', () => {
  /** Runs the parser on each line. A sanitizer would report on stderr and make the exit status nonzero. */
  async function parse(lines: readonly string[]): Promise<readonly string[]> {
    const outcome = await run([parts, 'boot-options', ...lines])
    expect(outcome).toMatchObject({ status: 0 })
    expect(outcome.stderr).not.toMatch(/runtime error|Sanitizer/)
    return outcome.stdout.split('\n').slice(0, -1)
  }

  it.each([
    ['root', 255],
    ['rootfstype', 127],
    ['rootflags', 511],
  ])('fills the room for %s= and no more', async (key, room) => {
    const lengths = [room - 1, room, room + 1, 100_000]
    const results = await parse(lengths.map((length) => `${key}=${'x'.repeat(length)}`))
    expect(results.map((line) => line.replace(/[^x]/g, '').length)).toEqual([room - 1, room, room, room])
  })

  it.each([
    ['"', '|||ro'],
    ['root="', '|||ro'],
    ['root="/dev/vda rw', '/dev/vda rw|||ro'],
    [`${'"'.repeat(99_999)} rw`, '|||ro'],
    [`${'"'.repeat(100_000)} rw`, '|||rw'],
    [' '.repeat(100_000), '|||ro'],
    ['root= rootfstype= rootflags=', '|||ro'],
    ['r o rootr rw" "', '|||ro'],
    ['root=\u{10ffff}é', '\u{10ffff}é|||ro'],
  ])('%.20j has the root options %j', async (line, options) => {
    expect(await parse([line])).toEqual([options])
  })

  it('is parsed whatever it contains', async () => {
    const pieces = [
      'root=',
      'rootfstype=',
      'rootflags=',
      'rootwait=',
      'console=hvc',
      'rw',
      'ro',
      '"',
      ' ',
      '\t',
      '=',
      ',',
      'é',
      'x'.repeat(200),
    ]
    const random = randomNumbers(1)
    const lines = Array.from({ length: 2000 }, () =>
      Array.from({ length: random(40) }, () => pieces[random(pieces.length)]).join(''),
    )
    expect(await parse(lines)).toHaveLength(lines.length)
  })
})

describe('the delay before a restart', () => {
  it.each([
    [
      [0, 1000, 2000, 3000, 4000, 5000],
      [0, 100, 200, 400, 800, -1],
    ],
    [
      [0, 30_000, 60_000, 90_001, 120_002, 150_003],
      [0, 100, 200, 100, 100, 100],
    ],
    [
      [0, 0, 0, 0, 0, 60_001],
      [0, 100, 200, 400, 800, 0],
    ],
  ])('after deaths at %j ms is %j ms', async (times, delays) => {
    const { stdout } = await run([parts, 'restart-delays', ...times.map(String)])
    expect(stdout.trim().split(' ').map(Number)).toEqual(delays)
  })
})

describe('the delay before each of many restarts', () => {
  const WINDOW_MS = 60_000
  const LIMIT = 5

  it('depends on the restarts of the last minute alone', async () => {
    const random = randomNumbers(2)
    const times: number[] = []
    for (let now = 0; times.length < 5000; now += random(4) === 0 ? random(100_000) : random(5000))
      times.push(now)
    let restarts: readonly number[] = []
    const expected = times.map((now) => {
      restarts = restarts.filter((time) => now - time <= WINDOW_MS)
      if (restarts.length === LIMIT) return -1
      restarts = [...restarts, now]
      return restarts.length === 1 ? 0 : 100 * 2 ** (restarts.length - 2)
    })
    const { status, stdout } = await run([parts, 'restart-delays', ...times.map(String)])
    expect(status).toBe(0)
    expect(stdout.trim().split(' ').map(Number)).toEqual(expected)
  })
})

describe('the channel to the agent', () => {
  it.each([1, 2, 3, 4])('loses no exit and repeats none, whatever agents do (seed %i)', async (seed) => {
    // The program checks each record. It prints that exits were read, that the ring overflowed and that exits were kept.
    const outcome = await run([parts, 'channel', String(seed), '3000'])
    expect(outcome).toEqual({ status: 0, stdout: '1 exits, 1 lost, 1 kept\n', stderr: '' })
  })

  it('keeps the exits of registered processes through floods of others, and no more than it has room for', async () => {
    const outcome = await run([parts, 'keep'])
    const stderr = 'vminit: more than 8192 exits cannot be kept\n'
    expect(outcome).toEqual({ status: 0, stdout: '1 1\n', stderr })
  })

  it.each([1, 7, 63, 64, 65, 128, 255])('receives records in pieces of %i bytes', async (size) => {
    const records = [1, 2, 3].map((status) => commandRecord(Kind.POWER_OFF, status))
    const rest = Buffer.alloc(63)
    const { status, stdout } = await run([parts, 'receive', String(size)], Buffer.concat([...records, rest]))
    expect(status).toBe(0)
    expect(stdout).toBe('2 16 1\n2 16 2\n2 16 3\n')
  })

  it('receives records of any content', async () => {
    const random = randomNumbers(3)
    const bytes = Buffer.from(Array.from({ length: 64 * 500 }, () => random(256)))
    const expected = Array.from({ length: 500 }, (_, index) =>
      [
        bytes.readUInt32LE(index * 64),
        bytes.readUInt32LE(index * 64 + 4),
        bytes.readInt32LE(index * 64 + 12),
      ].join(' '),
    )
    const { status, stdout } = await run([parts, 'receive', '200'], bytes)
    expect(status).toBe(0)
    expect(stdout.trimEnd().split('\n')).toEqual(expected)
  })
})

describe('the store of descriptors', () => {
  it('takes names of letters, digits and hyphens, each once', async () => {
    const longest = 'n'.repeat(31)
    const words = ['service', 'service', '', 'a b', 'a=1', 'A', `${longest}n`, longest]
    const { status, stdout } = await run([parts, 'store', ...words])
    expect(status).toBe(0)
    const invalid = Array.from({ length: 5 }, () => 'EINVAL')
    expect(stdout.trimEnd().split('\n')).toEqual(['ok', 'EEXIST', ...invalid, 'ok', '2'])
  })

  it('removes names, and takes them again', async () => {
    const words = ['a', 'b', 'c', '~a', '~a', '~A', 'a', 'c', '~b', '~c', '~a']
    const { status, stdout } = await run([parts, 'store', ...words])
    expect(status).toBe(0)
    const outcomes = ['ok', 'ok', 'ok', 'ok', 'ENOENT', 'EINVAL', 'ok', 'EEXIST', 'ok', 'ok', 'ok', '0']
    expect(stdout.trimEnd().split('\n')).toEqual(outcomes)
  })
})

describe('a line of the log', () => {
  it('is truncated to 1022 bytes', async () => {
    const lengths = [0, 1, 1013, 1014, 1015, 1016, 50_000]
    const { status, stderr } = await run([parts, 'log', ...lengths.map((length) => 'x'.repeat(length))])
    expect(status).toBe(0)
    expect(stderr).toMatch(/^(vminit: x*\n){7}$/)
    const lines = stderr.trimEnd().split('\n')
    expect(lines.map((line) => line.length)).toEqual([8, 9, 1021, 1022, 1022, 1022, 1022])
  })
})

describe('deleting the initramfs', () => {
  let folder: string

  beforeEach(async () => {
    folder = temporaryFolder()
    mkdirSync(join(folder, 'initramfs/mounted'), { recursive: true })
    mkdirSync(join(folder, 'outside'))
    await run(['mount', '-t', 'tmpfs', 'tmpfs', join(folder, 'initramfs/mounted')])
  })
  afterEach(() => run(['umount', join(folder, 'initramfs/mounted')]))

  it('neither enters another file system nor follows a link', async () => {
    const initramfs = join(folder, 'initramfs')
    mkdirSync(join(initramfs, 'modules/deep'), { recursive: true })
    writeFileSync(join(initramfs, 'modules/deep/one.ko'), '')
    writeFileSync(join(initramfs, 'mounted/kept'), '')
    writeFileSync(join(folder, 'outside/kept'), '')
    symlinkSync(join(folder, 'outside'), join(initramfs, 'link'))
    expect(await run([parts, 'delete-initramfs', initramfs])).toMatchObject({ status: 0 })
    expect(readdirSync(initramfs)).toEqual(['mounted'])
    expect(existsSync(join(initramfs, 'mounted/kept'))).toBe(true)
    expect(existsSync(join(folder, 'outside/kept'))).toBe(true)
  })
})

describe('what follows the end of an agent', () => {
  const [DONE, FAILED, REFUSED, KILLED] = [0, 1 << 8, 2 << 8, 9]
  const AFTER = [
    ...['end: not executable', 'end as requested', 'end: finished'],
    ...['end: wrong settings', 'end: policy lost', 'restart at once', 'restart delayed'],
  ]
  // i: init of a guest, r: end requested, x: not executed, p: policy lost, g: it has served, 1:
  // the first agent.
  it.each([
    ['a first one that cannot be executed', FAILED, 'x1 ix1 rx1', 'end: not executable'],
    ['a later one that cannot be executed', FAILED, 'x ix', 'restart delayed'],
    ['an end that a signal has requested', DONE, 'r ir irg', 'end as requested'],
    ['the same of one that was killed', KILLED, 'rpg ir1', 'end as requested'],
    ['one that has done its work, below another init', DONE, '- g 1 p', 'end: finished'],
    ['one that refuses its arguments, below another init', REFUSED, '- g 1', 'end: finished'],
    ['a first one that refuses its settings, in a guest', REFUSED, 'i1 ig1', 'end: wrong settings'],
    ['a later one that refuses them, in a guest', REFUSED, 'i', 'restart delayed'],
    ['one whose policy is lost', FAILED, 'p ip ipg p1', 'end: policy lost'],
    ['the same with the status of wrong settings', REFUSED, 'p ip1', 'end: policy lost'],
    ['one that has served', KILLED, 'g ig ig1', 'restart at once'],
    ['one that exits in a guest and has served', DONE, 'ig', 'restart at once'],
    ['one that never served', KILLED, '- i i1', 'restart delayed'],
    ['one that exits in a guest and never served', DONE, 'i i1', 'restart delayed'],
  ])('%s (status %i)', async (_case, status, flags, after) => {
    const words = flags.split(' ')
    const { stdout } = await run([parts, 'after-agent', `${status}`, ...words])
    expect(
      stdout
        .trim()
        .split(' ')
        .map((number) => AFTER[Number(number)]),
    ).toEqual(words.map(() => after))
  })
})

describe('the power button', () => {
  /** A message of generic netlink: its two headers, then attributes with their lengths and types. */
  function message(...attributes: readonly (readonly [number, string, number?])[]): string {
    const parts = attributes.map(([type, content, length = 4 + content.length]) => {
      const bytes = Buffer.alloc(4 + Math.ceil(content.length / 4) * 4)
      bytes.writeUInt16LE(length, 0)
      bytes.writeUInt16LE(type, 2)
      bytes.write(content, 4)
      return bytes
    })
    return Buffer.concat([Buffer.alloc(20), ...parts]).toString('hex')
  }
  const [PRESSED, CLASS] = ['button/power'.padEnd(43, '\0'), 'button/power\0']

  it('is pressed by the kernel’s event of that class alone', async () => {
    const messages = [
      ...[message([1, PRESSED]), message([7, 'other'], [1, CLASS]), message([0x8001, CLASS])],
      ...[message([1, 'button/sleep\0']), message([1, 'button/powers']), message([1, 'button/power'])],
      ...[message([2, PRESSED]), message(), '00', ''],
      // Lengths that are wrong.
      ...[message([1, CLASS, 3]), message([1, CLASS, 0xffff]), message([7, 'x', 5]), message([7, 'xyz', 0])],
    ]
    const { stdout, stderr, status } = await run([parts, 'power-button', ...messages])
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
    const pressed = stdout.split('\n').flatMap((line, index) => (line === 'pressed' ? [index] : []))
    expect(pressed).toEqual([0, 1, 2])
  })

  it('is not pressed by any bytes', async () => {
    const random = randomNumbers(4)
    const messages = Array.from({ length: 500 }, () =>
      Buffer.from(
        Array.from({ length: random(200) }, () => (random(3) === 0 ? random(256) : random(9))),
      ).toString('hex'),
    )
    const { stdout, stderr, status } = await run([parts, 'power-button', ...messages])
    expect({ status, stderr, stdout }).toEqual({ status: 0, stderr: '', stdout: '-\n'.repeat(500) })
  })

  it('is not pressed by another process', async () => {
    // A host without ACPI has no such events.
    expect(['-\n', 'ENOENT\n']).toContain((await run([parts, 'power-button-socket'])).stdout)
  })
})

describe('the writing of file systems before the power-off', () => {
  it('writes a disk beside a file system whose server is dead, which it names and does not wait for', async () => {
    const folder = join(temporaryFolder(), 'a b')
    const { status, stdout, stderr } = await run(['unshare', '--mount', 'sh', '-ec', SYNC, parts, folder])
    expect({ status, stdout }).toEqual({ status: 0, stdout: 'written\n' })
    expect(stderr).toContain(`vminit: file system ${folder}/dead: not written within 500 ms\n`)
    expect(stderr).not.toContain('/live')
  })
})

/** Reads the disk itself while it is mounted, because an unmount would write it, too. */
const SYNC = `mkdir "$1"
cd "$1"
mkdir live dead
truncate -s 8M disk
mkfs.ext4 -q disk
mount -o loop disk live
echo 'on the disk' > live/file
if grep -q 'on the disk' disk; then echo 'too early'; fi
"$0" sync 500 "$1/dead"
grep -q 'on the disk' disk
echo written
`
