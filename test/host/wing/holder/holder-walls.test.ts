import {
  chmodSync,
  chownSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readlinkSync,
  writeFileSync,
} from 'node:fs'
import { createServer } from 'node:net'
import { dirname, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { connected, nextExit, sh, TestHolders } from '../../../support/host/test-holder.ts'

const holders = new TestHolders()

const USER = 0x7000_0123

/** Runs a shell script within walls, and returns what it prints. */
async function walled(script: string, ...walls: readonly string[]): Promise<string> {
  const folder = holders.newFolder()
  const holder = await holders.start(folder)
  const exit = nextExit(holder)
  await holder.start({ name: 'a', output: 'log', argv: ['/bin/sh', '-c', script], walls })
  await exit
  await holder.end()
  return readFileSync(join(folder, 'a.log'), 'utf8')
}

function privateFile(name: string, text: string): string {
  const path = join(holders.newFolder(), name)
  writeFileSync(path, text, { mode: 0o600 })
  return path
}

describe('holder: walls', () => {
  it('make a process a user with some groups and no rights', async () => {
    const script = 'id -u; id -g; id -G; grep -E "CapEff|NoNewPrivs" /proc/self/status'
    const lines = (await walled(script, `uid=${USER}`, 'group=5', 'group=6')).split('\n')
    expect(lines.slice(0, 3)).toEqual([`${USER}`, `${USER}`, `${USER} 5 6`])
    expect(lines.slice(3, 5)).toEqual(['NoNewPrivs:\t1', 'CapEff:\t0000000000000000'].sort())
  })

  it('open a disk that the user cannot reach, for reading or for both', async () => {
    const disk = privateFile('disk', 'content')
    const script = 'cat <&3; echo x >&3; echo new >&4'
    const text = await walled(script, `uid=${USER}`, `disk=3:r:${disk}`, `disk=4:rw:${disk}`)
    expect(text).toMatch(/^content.*echo: I\/O error/)
    expect(readFileSync(disk, 'utf8')).toBe('new\nent')
  })

  it('copy a file for reading that only root may read, and never one that is mapped', async () => {
    const secret = privateFile('secret', 'secret')
    const script = 'cat /proc/self/fd/3; (echo x >/proc/self/fd/3) 2>/dev/null; cat /proc/self/fd/3'
    expect(await walled(script, `uid=${USER}`, `read=3:${secret}`)).toMatch(/^secret/)
    expect(readFileSync(secret, 'utf8')).toBe('secret')
    await expect(walled('true', `uid=${USER}`, `map=3:${secret}`)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `holder: start a: map=3:${secret}: EACCES`,
    })
    chmodSync(secret, 0o644)
    expect(await walled('cat /proc/self/fd/3', `uid=${USER}`, `map=3:${secret}`)).toBe('secret')
  })

  it('listen on and connect to sockets of root', async () => {
    const folder = holders.newFolder()
    const [listening, other] = [join(folder, 'listening'), join(folder, 'other')]
    const server = createServer((socket) => socket.end('hello'))
    await new Promise<void>((resolve) => server.listen(other, resolve))
    chmodSync(other, 0o600)
    const perl = `perl -e 'open(S, "+<&=4"); print scalar <S>; open(L, "+<&=3"); accept(C, L) && print " accepted"'`
    const holder = await holders.start(folder)
    const exit = nextExit(holder)
    const walls = [`uid=${USER}`, `listen=3:${listening}`, `connect=4:${other}`]
    await holder.start({ name: 'a', output: 'log', argv: ['/bin/sh', '-c', perl], walls })
    const client = await connected(listening)
    await exit
    client.destroy()
    server.close()
    expect(readFileSync(join(folder, 'a.log'), 'utf8')).toBe('hello accepted')
  })

  it('leave the network of the host, but for an interface that is opened before', async () => {
    const text = await walled('tail -n +3 /proc/self/net/dev | wc -l', 'network=none', 'tap=3:walltap9')
    expect(text.trim()).toBe('1')
    expect(existsSync('/sys/class/net/walltap9')).toBe(false)
  })

  it('give each process a network of its own', async () => {
    const folder = holders.newFolder()
    const holder = await holders.start(folder)
    const networks = new Set([readlinkSync('/proc/self/ns/net')])
    for (const name of ['a', 'b', 'c']) {
      const exit = nextExit(holder)
      const script = 'readlink /proc/self/ns/net; ls /proc/self/fd | tr "\\n" " "'
      await holder.start({ ...sh(name, 'log', script), walls: ['network=none'] })
      await exit
      const [network = '', descriptors] = readFileSync(join(folder, `${name}.log`), 'utf8').split('\n')
      networks.add(network)
      expect(descriptors).toBe('0 1 2 3 ')
    }
    expect(networks.size).toBe(4)
  })

  it('join no interface of several queues that another has', async () => {
    const queues = ['first-queue=3:walltap8', 'queue=4:walltap8']
    const holder = await holders.start()
    await holder.start({ name: 'a', output: 'log', argv: ['sleep', '60'], walls: queues })
    await expect(walled('true', ...queues)).rejects.toThrow('first-queue=3:walltap8: EBUSY')
    await holder.end()
  })

  it('show only the processes of the holder in /proc, which is another', async () => {
    const script =
      'echo $$; echo $(ls /proc | grep -E "^[0-9]+$" | wc -l); readlink /proc/1/exe; grep -c proc /proc/mounts'
    const [pid, count] = (await walled(script, 'processes=own')).split('\n').map(Number)
    expect(pid).toBeLessThan(10)
    expect(count).toBeLessThan(10)
    expect(readFileSync('/proc/mounts', 'utf8').match(/^proc \/proc /gm)).toHaveLength(1)
  })

  it('start a program whose folder the user cannot pass', async () => {
    const folder = holders.newFolder()
    const bin = join(folder, 'bin')
    mkdirSync(bin, { mode: 0o700 })
    copyFileSync('/usr/bin/id', join(bin, 'id'))
    const holder = await holders.start(folder)
    const exit = nextExit(holder)
    const walls = [`uid=${USER}`]
    await holder.start({ name: 'a', output: 'log', argv: [join(bin, 'id'), '-u'], walls })
    await exit
    expect(readFileSync(join(folder, 'a.log'), 'utf8')).toBe(`${USER}\n`)
  })

  it('leave the network and pass descriptors for an ordinary user too', async () => {
    const folder = holders.newFolder()
    const [program, disk, wrapper] = [join(folder, 'holder'), join(folder, 'disk'), join(folder, 'wrapper')]
    copyFileSync(holders.program, program)
    writeFileSync(disk, 'content\n', { mode: 0o600 })
    const user = `--reuid ${USER} --regid ${USER} --clear-groups --inh-caps=-all`
    writeFileSync(wrapper, `#!/bin/sh\nexec setpriv ${user} ${program} "$@"\n`, { mode: 0o755 })
    chmodSync(dirname(folder), 0o711)
    for (const path of [folder, disk]) chownSync(path, USER, USER)
    const holder = await holders.start(folder, wrapper)
    const script = 'cat <&3; cat /proc/self/fd/4; tail -n +3 /proc/net/dev | wc -l; id -u'
    const walls = ['network=none', `disk=3:r:${disk}`, `read=4:${disk}`]
    for (const name of ['a', 'b']) {
      const exit = nextExit(holder)
      await holder.start({ ...sh(name, 'log', script), walls })
      await exit
      expect(readFileSync(join(folder, `${name}.log`), 'utf8')).toBe(`content\ncontent\n1\n${USER}\n`)
    }
  })

  it.each([
    'uid=0',
    'uid=4294967295',
    'uid=-1',
    'group=',
    'network=host',
    'processes=all',
    'disk=2:r:/x',
    'disk=1001:r:/x',
    'disk=3:x:/x',
    'disk=3:/x',
    'read=3:',
    'read=3',
    'read=:/x',
    'read=33333333333333:/x',
    'tap=3:a-name-of-16-byte',
    'cgroup=/x',
    '',
  ])('refuse the wrong word "%s"', async (word) => {
    const holder = await holders.start()
    const start = holder.start({ name: 'a', output: 'log', argv: ['/bin/true'], walls: [word] })
    await expect(start).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: expect.stringContaining('wrong, want uid=N'),
    })
    expect(await holder.children()).toEqual([])
    await holder.end()
  })
})
