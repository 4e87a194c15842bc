import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, writeFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { inNamespaceOf } from '../../support/host/agent-pod.ts'
import { type AgentProcess, startAgent } from '../../support/host/agent-process.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

/** On a machine without vsock, paths stand for the ports. */
let folder: string
let started: AgentProcess
const connections: Socket[] = []

afterEach(async () => {
  for (const connection of connections.splice(0)) connection.destroy()
  await started.stop()
})

describe('the debug console', () => {
  it('is a shell on a terminal of its own for each connection, and leaves nothing when it is closed', async () => {
    await startWithConsole()
    const [one, two] = [await dial(1026), await dial(1026)]
    const [first, second] = [await ask(one, 'tty; echo $$; echo $((40+2))'), await ask(two, 'tty; echo $$')]
    expect(first).toMatch(/\/dev\/pts\/\d+/)
    expect(first).toContain('\n42\r\n')
    expect(ttyIn(first)).not.toBe(ttyIn(second))
    // Under job control, a background job has its own process group; if it ignores hang-ups, it outlives its shell.
    await ask(
      one,
      '(trap "" HUP; exec sleep 98761) & nohup sleep 98762 >/dev/null 2>&1 & sleep 98763 | cat &',
    )
    await ask(one, 'until [ "$(pgrep -fc "^sleep 9876")" = 3 ]; do :; done')
    expect(sleepers()).toHaveLength(3)
    one.destroy()
    await started.logged({ msg: 'debug console closed', reason: 'connection closed' })
    expect(sleepers()).toEqual([])
    expect(await ask(two, 'echo $((50+3))')).toContain('53')
    two.write('exit\n')
    await once(two, 'close')
    await started.logged({ msg: 'debug console closed', reason: 'shell ended' })
    expect(started.openFiles().filter((kind) => kind.includes('pts') || kind.includes('ptmx'))).toEqual([])
  })

  it('is open at most eight times', async () => {
    await startWithConsole()
    for (let count = 0; count < 8; count++) await ask(await dial(1026), 'echo $((40+2))')
    const ninth = await dial(1026)
    expect(await all(ninth)).toBe('debug console: 8 are open, want no more\r\n')
    connections[0]?.destroy()
    await started.logged({ msg: 'debug console closed' })
    await ask(await dial(1026), 'echo $((40+2))')
  })

  it('prefers the shell of the extension image', async () => {
    await startWithConsole()
    mkdirSync(started.inside('/run/kata-extensions/devkit/bin'), { recursive: true })
    const shell = started.inside('/run/kata-extensions/devkit/bin/devkit-sh')
    writeFileSync(shell, '#!/bin/sh\necho devkit of extension\n', { mode: 0o755 })
    expect(await all(await dial(1026))).toBe('devkit of extension\r\n')
  })

  it('says why there is none when each shell is a fifo, no program or not executable, and does not hang', async () => {
    await startWithConsole()
    execFileSync('mkfifo', [join(folder, 'fifo')])
    writeFileSync(join(folder, 'text'), 'text', { mode: 0o644 })
    mkdirSync(started.inside('/run/kata-extensions/devkit/bin/devkit-sh'), { recursive: true })
    inNamespaceOf(started, 'mount', '--bind', join(folder, 'fifo'), '/bin/bash')
    inNamespaceOf(started, 'mount', '--bind', join(folder, 'text'), '/bin/sh')
    const extension = '/run/kata-extensions/devkit/bin/devkit-sh'
    const each = `${extension}: is a directory; /bin/bash: is a fifo; /bin/sh: not executable`
    const wrong = `no shell: ${each}; want one: npm run image -- --with debug-shell`
    expect(await all(await dial(1026))).toBe(`debug console: ${wrong}\r\n`)
    await started.logged({ msg: 'debug console refused', level: 'WARN', reason: wrong })
  })

  it('ends with the agent, whose successor has the same socket', async () => {
    await startWithConsole()
    const console = await dial(1026)
    await ask(console, 'trap "" HUP; echo $((40+2))')
    await ask(console, 'sleep 98764 & echo started')
    process.kill(started.agentPid(), 'SIGKILL')
    // The listening socket lasts: this connection waits for the next agent.
    const next = await dial(1026)
    await once(console, 'close')
    expect(await ask(next, 'echo $((50+3))')).toContain('53')
    expect(sleepers()).toEqual([])
  })

  it('is absent unless it is enabled', async () => {
    folder = temporaryFolder()
    started = await startAgent({ settings: { debug_console_vport: '1026', stdio_dial: dialSetting() } })
    await expect(dial(1026)).rejects.toMatchObject({ code: 'ENOENT' })
  })
})

describe('the log port', () => {
  it('has the lines since the start, then each new one, for one reader after the other', async () => {
    folder = temporaryFolder()
    started = await startAgent({ settings: { log_vport: '1025', stdio_dial: dialSetting() } })
    await started.logged({ msg: 'log continues at its port' })
    const reader = await dial(1025)
    const text = collect(reader)
    await started.health.check({})
    await started.agent.removeContainer({ containerId: 'none' }).catch(() => {})
    await text.until('"containerId":"none"')
    const lines = text
      .soFar()
      .trimEnd()
      .split('\n')
      .map((line): Record<string, string> => JSON.parse(line))
    expect(lines.map(({ msg }) => msg)).toEqual(
      expect.arrayContaining(['limits', 'listening', 'booted', 'rpc']),
    )
    // The console receives lines from before the port was open.
    expect(started.log.some(({ msg }) => msg === 'listening')).toBe(true)
    expect(started.log.some(({ containerId }) => containerId === 'none')).toBe(false)
    expect(await all(await dial(1025))).toBe('')
    reader.destroy()
    await once(reader, 'close')
    await started.agent.removeContainer({ containerId: 'later' }).catch(() => {})
    const second = collect(await dial(1025))
    await second.until('"containerId":"later"')
    expect(second.soFar()).not.toContain('"msg":"listening"')
  })
})

async function startWithConsole(): Promise<void> {
  folder = temporaryFolder()
  const settings = { debug_console: 'true', debug_console_vport: '1026', stdio_dial: dialSetting() }
  started = await startAgent({ settings })
  await started.logged({ msg: 'booted' })
}

function dialSetting(): string {
  return JSON.stringify(`unix:${folder}`)
}

async function dial(port: number): Promise<Socket> {
  const socket = connect(join(folder, `listener_${port}`))
  connections.push(socket)
  await new Promise<void>((resolve, reject) => socket.once('connect', resolve).once('error', reject))
  return socket
}

/** Types a line, and resolves with the output up to the marker that is printed after it. */
async function ask(socket: Socket, line: string): Promise<string> {
  const text = collect(socket)
  // The echo of the line does not contain the marker's sum.
  socket.write(`${line}\necho end-$((70+7))\n`)
  await text.until('end-77')
  return text.soFar()
}

function collect(socket: Socket) {
  let text = ''
  const look = new Set<() => void>()
  socket.setEncoding('utf8').on('data', (chunk) => {
    text += String(chunk)
    for (const each of look) each()
  })
  const until = (wanted: string) =>
    new Promise<void>((resolve) => {
      const each = () => {
        if (!text.includes(wanted)) return
        look.delete(each)
        resolve()
      }
      look.add(each)
      each()
    })
  return { soFar: () => text, until }
}

async function all(socket: Socket): Promise<string> {
  const text = collect(socket)
  await once(socket, 'close')
  return text.soFar()
}

function ttyIn(text: string): string | undefined {
  return /\/dev\/pts\/\d+/.exec(text)?.[0]
}

function sleepers(): readonly string[] {
  return execFileSync('sh', ['-c', 'pgrep -f "^sleep 9876[0-9]" || true'], { encoding: 'utf8' })
    .split('\n')
    .filter(Boolean)
}
