import { chmodSync, mkdirSync, readFileSync, rmSync, symlinkSync, watch, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { DeepPartial, Hook } from '../../../src/gen/oci.ts'
import { bind, createContainerRequest } from '../../support/containers/container-requests.ts'
import { RemoteProcess } from '../../support/containers/pod.ts'
import { type AgentPod, leftoversOf, NOTHING_LEFT, startPod } from '../../support/host/agent-pod.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const KINDS = [
  'Prestart',
  'CreateRuntime',
  'CreateContainer',
  'StartContainer',
  'Poststart',
  'Poststop',
] as const
type Kind = (typeof KINDS)[number]

/** Writes a line with the hook's kind, its arguments and the state from stdin; fails if FAILING is its kind. */
const SCRIPT = `#!/bin/sh
echo "$HOOK $* $(cat)" >> $NOTES
[ "$HOOK" != "$FAILING" ]
`

interface Note {
  readonly who: string
  readonly status: string
  readonly id: string
}

/** A hook that exceeds its timeout and leaves a process that holds its streams. */
const SLOW = { Path: '/bin/sh', Args: ['sh', '-c', 'sleep 1000 & sleep 1000'], Timeout: 1n }

describe('hooks', () => {
  const folder = temporaryFolder()
  const notes = join(folder, 'notes')
  const guestHooks = join(folder, 'guest')
  let pod: AgentPod
  let seen = 0

  beforeAll(async () => {
    writeFileSync(join(folder, 'hook'), SCRIPT, { mode: 0o755 })
    for (const kind of ['prestart', 'poststart', 'poststop']) guestHook(kind)
    symlinkSync(join(folder, 'hook'), join(guestHooks, 'prestart/link'))
    writeFileSync(join(guestHooks, 'prestart/text'), SCRIPT, { mode: 0o644 })
    pod = await startPod({}, { guestHookPath: guestHooks })
  })
  afterEach(() => rmSync(notes, { force: true }))
  afterAll(() => pod.stop())

  /** A guest hook that fails for containers whose id begins with `guest-fails`. */
  function guestHook(kind: string): void {
    const script = `#!/bin/sh
state=$(cat)
echo "guest-${kind} $* $state" >> ${notes}
case $state in *guest-fails-${kind}*) echo guest says no >&2; exit 1; esac
`
    mkdirSync(join(guestHooks, kind), { recursive: true })
    writeFileSync(join(guestHooks, kind, 'noter'), script)
    chmodSync(join(guestHooks, kind, 'noter'), 0o755)
  }

  /** A container with one hook of each kind; one of them may fail. */
  function request(id: string, options: { readonly failing?: Kind; readonly hook?: DeepPartial<Hook> } = {}) {
    const { failing = '', hook = {} } = options
    const hooks = KINDS.map((kind) => {
      const inside = kind === 'StartContainer'
      const env = [
        `HOOK=${kind}`,
        `NOTES=${inside ? '/tmp/notes' : notes}`,
        `FAILING=${failing}`,
        'PATH=/bin:/usr/bin',
      ]
      const path = inside ? '/bin/hook' : join(folder, 'hook')
      return [kind, [{ Path: path, Args: ['hook', 'argument'], Env: env, ...(kind === failing ? hook : {}) }]]
    })
    return createContainerRequest(id, pod.root, ['sh', '-c', 'read line; exit 4'], {
      mounts: [bind(join(folder, 'hook'), '/bin/hook'), bind(folder, '/tmp')],
      spec: { Hooks: Object.fromEntries(hooks) },
    })
  }

  function noted(): Note[] {
    const lines = readFileSync(notes, 'utf8').trim().split('\n')
    return lines.map((line) => {
      const brace = line.indexOf('{')
      const { status, id }: { status: string; id: string } = JSON.parse(line.slice(brace))
      return { who: line.slice(0, brace).trim(), status, id }
    })
  }
  const whoRan = () => noted().map(({ who }) => who.split(' ')[0])

  it('run in their order with the container’s state, those of the guest after the container’s own', async () => {
    const id = 'ordered'
    await pod.agent.createContainer(request(id))
    const created = ['Prestart', 'guest-prestart', 'CreateRuntime', 'CreateContainer']
    expect(whoRan()).toEqual(created)
    await pod.agent.startContainer({ containerId: id })
    const started = [...created, 'StartContainer', 'Poststart', 'guest-poststart']
    expect(whoRan()).toEqual(started)
    const init = new RemoteProcess(pod.agent, id)
    await init.write('\n')
    expect(await init.wait()).toBe(4)
    expect(whoRan()).toEqual(started)
    await pod.remove(id)
    expect(noted()).toEqual([
      { who: 'Prestart argument', status: 'creating', id },
      { who: 'guest-prestart prestart', status: 'creating', id },
      { who: 'CreateRuntime argument', status: 'creating', id },
      { who: 'CreateContainer argument', status: 'creating', id },
      { who: 'StartContainer argument', status: 'created', id },
      { who: 'Poststart argument', status: 'running', id },
      { who: 'guest-poststart poststart', status: 'running', id },
      { who: 'Poststop argument', status: 'stopped', id },
      { who: 'guest-poststop poststop', status: 'stopped', id },
    ])
    expect(leftoversOf(pod.started, id)).toEqual(NOTHING_LEFT)
  })

  it.each(['Prestart', 'CreateRuntime', 'CreateContainer'] as const)(
    'of kind %s that fail fail the creation, which leaves nothing but calls poststop',
    async (failing) => {
      await expect(pod.agent.createContainer(request('failing', { failing }))).rejects.toMatchObject({
        code: 'INTERNAL',
        message: expect.stringMatching(new RegExp(`running ${failing} hook .*\\(hook #0: ${failing} `, 'i')),
      })
      expect(whoRan().slice(-3)).toEqual([failing, 'Poststop', 'guest-poststop'])
      expect(leftoversOf(pod.started, 'failing')).toEqual(NOTHING_LEFT)
      await pod.agent.createContainer(request('failing'))
      await pod.remove('failing')
    },
  )

  it.each([
    ['fail', {}, 'exit status 1: '],
    ['are missing', { Path: '/bin/nosuch' }, 'the file /bin/nosuch was not found'],
    ['are no programs', { Path: '/etc' }, '/etc'],
    ['take too long', SLOW, 'not finished after 1000 ms'],
  ])('of kind StartContainer that %s are logged alone', async (_what, hook, error) => {
    await pod.agent.createContainer(request('hooked', { failing: 'StartContainer', hook }))
    await pod.agent.startContainer({ containerId: 'hooked' })
    expect(whoRan().slice(-2)).toEqual(['Poststart', 'guest-poststart'])
    const failed = { msg: 'startContainer hook failed', containerId: 'hooked' }
    seen += 1
    expect((await pod.started.logged(failed, seen)).error).toContain(error)
    const init = new RemoteProcess(pod.agent, 'hooked')
    await init.write('\n')
    expect(await init.wait()).toBe(4)
    await pod.remove('hooked')
    expect(leftoversOf(pod.started, 'hooked')).toEqual(NOTHING_LEFT)
  })

  it('of kind StartContainer have the rights of the container, and see it as it is', async () => {
    const look =
      'id -u; pwd; grep CapEff /proc/self/status; echo $A; ls -d /proc/1; cat > /tmp/state; sleep 0'
    const hook = {
      Path: '/bin/sh',
      Args: ['sh', '-c', `{ ${look}; } > /tmp/looked 2>&1`],
      Env: ['PATH=/bin', 'A=b'],
    }
    await pod.create('rights', ['sh', '-c', 'cat /tmp/looked'], {
      mounts: [bind(folder, '/tmp')],
      spec: { Hooks: { StartContainer: [hook] } },
    })
    await pod.agent.startContainer({ containerId: 'rights' })
    const looked = (await new RemoteProcess(pod.agent, 'rights').readAll()).toString()
    expect(looked).toBe('0\n/\nCapEff:\t0000000000040020\nb\n/proc/1\n')
    const state: unknown = JSON.parse(readFileSync(join(folder, 'state'), 'utf8'))
    expect(state).toMatchObject({ id: 'rights', status: 'created', pid: 1 })
    await pod.remove('rights')
  })

  it('of kind StartContainer end at once when the container is removed', async () => {
    const began = Promise.withResolvers<void>()
    const watcher = watch(folder, (_event, name) => name === 'began' && began.resolve())
    const hook = {
      Path: '/bin/sh',
      Args: ['sh', '-c', 'echo > /tmp/began; sleep 1000'],
      Env: ['PATH=/bin'],
      Timeout: 900n,
    }
    await pod.create('leaving', ['sleep', '1000'], {
      mounts: [bind(folder, '/tmp')],
      spec: { Hooks: { StartContainer: [hook] } },
    })
    const starting = pod.agent.startContainer({ containerId: 'leaving' })
    await began.promise
    watcher.close()
    const failed = expect(starting).rejects.toThrow('container leaving is to be removed')
    await pod.remove('leaving')
    await failed
    expect(leftoversOf(pod.started, 'leaving')).toEqual(NOTHING_LEFT)
  })

  it('of kind Poststart that fail, or take too long, are logged alone', async () => {
    const slow = { Path: '/bin/busybox', Args: ['sh', '-c', 'sleep 1000 & sleep 1000'], Timeout: 1n }
    for (const [id, hook] of Object.entries({ failed: {}, slow })) {
      await pod.agent.createContainer(request(id, { failing: 'Poststart', hook }))
      await pod.agent.startContainer({ containerId: id })
      expect(whoRan().at(-1)).toBe('guest-poststart')
      await pod.started.logged({ msg: 'poststart hook failed', containerId: id })
      const init = new RemoteProcess(pod.agent, id)
      await init.write('\n')
      expect(await init.wait()).toBe(4)
      await pod.remove(id)
    }
    const errors = pod.started.log.flatMap(({ msg, error }) =>
      msg === 'poststart hook failed' ? [error] : [],
    )
    expect(errors).toEqual(['exit status 1: ', expect.stringContaining('not finished after 1000 ms')])
    expect(leftoversOf(pod.started, 'failed', 'slow')).toEqual(NOTHING_LEFT)
  })

  it('of kind Poststop that fail are logged alone; runc runs none after it', async () => {
    await pod.agent.createContainer(request('ended', { failing: 'Poststop' }))
    await pod.remove('ended')
    expect(whoRan().at(-1)).toBe('Poststop')
    const { error } = await pod.started.logged({ msg: 'poststop hook failed', containerId: 'ended' })
    expect(error).toContain('error running poststop hook #0')
    expect(leftoversOf(pod.started, 'ended')).toEqual(NOTHING_LEFT)
  })

  it('of the guest fail a creation as any other prestart hook, and are logged after the start', async () => {
    await expect(pod.create('guest-fails-prestart', ['true'])).rejects.toThrow('guest says no')
    expect(leftoversOf(pod.started, 'guest-fails-prestart')).toEqual(NOTHING_LEFT)
    const init = await pod.run('guest-fails-poststart', ['sh', '-c', 'exit 6'])
    await pod.started.logged({ msg: 'poststart hook failed', error: 'exit status 1: guest says no' })
    expect(await init.wait()).toBe(6)
    await pod.remove('guest-fails-poststart')
  })
})
