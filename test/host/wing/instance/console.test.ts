import { type ChildProcess, spawn } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { projectRoot } from '../../../../src/build/project.ts'
import { ConsoleIO } from '../../../../src/gen/vm.ts'
import { CONSOLE_LIMITS } from '../../../../src/host/instance/console/shared-console.ts'
import { readRing } from '../../../../src/host/instance/holder/holder-files.ts'
import { statusNumber } from '../../../support/host/test-holder.ts'
import { daemonClient, type OpenStream } from '../../../support/host-wing/running-daemon.ts'
import { microvm } from '../../../support/microvm/run-microvm.ts'
import { endChild } from '../../../support/processes.ts'
import { temporaryFolder } from '../../../support/temporary-folder.ts'
import { standInQemu } from '../../../support/wing/fakes/stand-in-qemu.ts'
import { CONSOLE_ONLY, ensureRequest } from '../../../support/wing/requests.ts'
import { tinyGuest } from '../../../support/wing/tiny-guest.ts'

const { tailBytes, behindBytes } = CONSOLE_LIMITS
const STEP = 256 * 1024
/** A connection of the daemon has 128 streams. */
const STREAMS = { silent: 1000, ofConnection: 100 }
const GIB = 2 ** 30
/** Ctrl-P Ctrl-Q. */
const DETACH = '\x10\x11'

/** What has come of a console so far, without its zeros, and how many bytes were printed or lost. */
class Shown {
  readonly stream: OpenStream
  bytes = 0
  lost = 0
  text = ''
  #news = Promise.withResolvers<void>()

  constructor(stream: OpenStream) {
    this.stream = stream
    stream.call.on('data', (bytes: Buffer) => {
      const text = Buffer.from(ConsoleIO.decode(bytes).data).toString('latin1')
      const marker = /^\r\n\[microvm: (\d+) bytes of the console were lost here\]\r\n$/.exec(text)
      if (marker === null) this.bytes += text.length
      else this.lost += Number(marker[1])
      this.text = `${this.text}${text.replaceAll('\0', '')}`.slice(-1024)
      this.#news.resolve()
      this.#news = Promise.withResolvers()
    })
  }

  type(text: string): void {
    this.stream.call.write(ConsoleIO.encode({ data: Buffer.from(text) }).finish())
  }

  async until(isReached: (shown: Shown) => boolean): Promise<void> {
    const ended = this.stream.ended.then(() => Promise.reject(new Error(`the console ended: ${this.text}`)))
    ended.catch(() => {})
    while (!isReached(this)) await Promise.race([this.#news.promise, ended])
  }
}

describe('the console of a machine by a daemon', () => {
  let folder: string
  let daemon: ChildProcess
  let clients: ReturnType<typeof daemonClient>[]

  beforeEach(async () => {
    folder = temporaryFolder()
    clients = []
    const main = join(projectRoot, 'src/microvm/main.ts')
    const env = { ...process.env, PATH: `${standInQemu(folder)}:${process.env.PATH}` }
    daemon = spawn(process.execPath, [main, 'daemon', '--state', join(folder, 'state')], {
      ...{ env, stdio: ['ignore', 'ignore', 'pipe'] },
    })
    let log = ''
    for await (const chunk of daemon.stderr?.iterator({ destroyOnReturn: false }) ?? []) {
      log += chunk
      if (log.includes('"msg":"serving"')) break
    }
    daemon.stderr?.resume()
    const specification = { ...CONSOLE_ONLY, board: { kernel: tinyGuest(folder, 'idle') } }
    await client().instances.ensureInstance(ensureRequest('web', { specification }))
  })

  afterEach(async () => {
    await client().instances.remove({ key: 'web' })
    for (const each of clients) each.close()
    await endChild(daemon)
  })

  function client() {
    const made = daemonClient(join(folder, 'state/admin.sock'))
    clients.push(made)
    return made
  }

  const open = (of = client()) =>
    new Shown(of.open('metropolis.proto.vm.OOBManagement/Console', { metadata: { instance: 'web' } }))

  it('gives each caller the last 64 KiB, then all, and takes what each types', async () => {
    const [first, second] = [open(), open()]
    first.type('hello\n')
    second.type('world\n')
    for (const shown of [first, second])
      await shown.until(({ text }) => text.includes('hello') && text.includes('world'))
    first.type(`print ${STEP}\nthen\n`)
    await first.until(({ text }) => text.includes('then'))
    const third = open()
    await third.until(({ text }) => text.includes('then'))
    expect(third.bytes).toBe(tailBytes)
    third.type('end\n')
    for (const shown of [first, second, third]) await shown.until(({ text }) => text.includes('end'))
    expect([first.bytes, second.bytes, third.bytes]).toEqual([STEP + 21, STEP + 21, tailBytes + 4])
    expect(first.lost + second.lost + third.lost).toBe(0)
  })

  it('tells a slow caller how many bytes it has lost, and loses none of the others', async () => {
    const [first, second, slow] = [open(), open(), open()]
    slow.type('hello\n')
    for (const shown of [first, second, slow]) await shown.until(({ text }) => text.includes('hello'))
    slow.stream.call.pause()
    const steps = (4 * behindBytes) / STEP
    for (let step = 1; step <= steps; step++) {
      first.type(`print ${STEP}\n`)
      for (const shown of [first, second]) await shown.until(({ bytes }) => bytes === 6 + step * STEP)
    }
    slow.stream.call.resume()
    slow.type('end\n')
    for (const shown of [first, second, slow]) await shown.until(({ text }) => text.includes('end'))
    const total = 6 + steps * STEP + 4
    expect([first.bytes, second.bytes, first.lost, second.lost]).toEqual([total, total, 0, 0])
    expect(slow.bytes + slow.lost).toBe(total)
    expect(slow.lost).toBeGreaterThan(behindBytes)
  })

  it('keeps the end of 1 GiB that no caller reads, within the memory of the holder and of the daemon', async () => {
    const silent = [open(), open()]
    silent[0]?.type('hello\n')
    for (const shown of silent) {
      await shown.until(({ text }) => text.includes('hello'))
      shown.stream.call.pause()
    }
    const before = statusNumber(daemon.pid ?? 0, 'VmRSS')
    const [id = ''] = readdirSync(join(folder, 'state/instances'))
    silent[0]?.type(`print ${GIB}\nthen\n`)
    const end = async () => (await readRing(join(folder, 'state/instances', id), 0)).end
    await expect.poll(end, { interval: 200, timeout: 50_000 }).toBe(BigInt(GIB + 11))
    const { holderPid } = await client().instances.getInstance({ key: 'web' })
    expect(statusNumber(holderPid, 'VmHWM')).toBeLessThanOrEqual(1024)
    expect(statusNumber(daemon.pid ?? 0, 'VmHWM') - before).toBeLessThan(128 * 1024)
    const stdin = new PassThrough()
    const leave = (text: string) => text.includes('then') && stdin.write(DETACH)
    const words = ['console', 'web', '--socket', join(folder, 'state/admin.sock')]
    expect(await microvm(words, { stdin, onOutput: leave })).toMatchObject({ status: 0 })
  })

  it('slows no guest, and stays small, with 1,000 callers that never read and one that types 1 GiB', async () => {
    const before = statusNumber(daemon.pid ?? 0, 'VmRSS')
    const silent: Shown[] = []
    for (let count = 0; count < STREAMS.silent; count += STREAMS.ofConnection) {
      const connection = client()
      for (let stream = 0; stream < STREAMS.ofConnection; stream++) silent.push(open(connection))
    }
    const reader = open()
    reader.type('hello\n')
    for (const shown of [...silent, reader]) await shown.until(({ text }) => text.includes('hello'))
    for (const { stream } of silent) stream.call.pause()
    const begin = performance.now()
    reader.type(`print ${16 * behindBytes}\nend\n`)
    await reader.until(({ text }) => text.includes('end'))
    expect(performance.now() - begin).toBeLessThan(20_000)

    reader.type('deaf\n')
    const typist = open()
    const data = ConsoleIO.encode({ data: Buffer.alloc(64 * 1024, 'x') }).finish()
    let typed = 0
    const type = () => {
      for (let takesMore = true; takesMore && typed < GIB; typed += data.length)
        takesMore = typist.stream.call.write(data)
    }
    typist.stream.call.on('drain', type)
    type()
    // It stands still while others are served.
    const connection = client()
    for (let [still, last] = [0, -1]; still < 100; last = typed) {
      const other = open(connection)
      await other.until(({ bytes }) => bytes === tailBytes)
      other.stream.call.cancel()
      still = typed === last ? still + 1 : 0
    }
    expect(typed).toBeLessThan(GIB / 16)
    expect(statusNumber(daemon.pid ?? 0, 'VmHWM') - before).toBeLessThan(256 * 1024)
  })
})
