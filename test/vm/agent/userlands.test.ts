import { execFileSync } from 'node:child_process'
import { chmodSync, cpSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { SIGTERM } from '../../../src/base/signals.ts'
import { containerSpec } from '../../../src/client/container/container-spec.ts'
import { specKey } from '../../../src/host/spec/spec-key.ts'
import { openRoot, packRoot } from '../../../src/microvm/run/container-root.ts'
import type { GuestParts } from '../../../src/microvm/run/guest-spec.ts'
import { type WhatToRun, whatToRun } from '../../../src/microvm/run/run-command.ts'
import { type Pod, RemoteProcess } from '../../support/containers/pod.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { CRUN, cannotBoot, progress, type TestGuest } from '../../support/vm/boot-guest.ts'
import { ensureDebianRoot } from '../../support/vm/debian-root.ts'
import { bootPod } from '../../support/vm/guest-pod.ts'
import { writeOciLayout } from './oci-image.ts'

const SIGQUIT = 3

/** The root user, and options that keep an image's configuration. */
const ROOT_USER = { uid: 0, gid: 0, additionalGids: [] }
const OF_IMAGE = { command: [], rootfs: 'image', env: [], workdir: undefined, user: undefined }

const DISKS = { debian: 6, image: 7 } as const

describe.skipIf(cannotBoot() !== undefined)('containers of real userlands', () => {
  let folder: string
  let guest: TestGuest
  let pod: Pod
  let image: WhatToRun

  beforeAll(async () => {
    folder = temporaryFolder()
    const debian = await ensureDebianRoot(progress)
    const paths = { debian: join(folder, 'debian.ext4'), image: join(folder, 'image.ext4') }
    progress('packing the userlands')
    await packRoot(debian, paths.debian, neverAborted)
    const unpacked = await openRoot(makeImage(folder), makeFolder(folder, 'work'), neverAborted)
    image = whatToRun(OF_IMAGE, unpacked.config)
    await packRoot(unpacked.folder, paths.image, neverAborted)
    ;({ guest, pod } = await bootPod({ extra: disksOf(paths), append: [CRUN] }))
  })
  afterAll(async () => {
    await guest?.stop()
  })

  async function run(id: string, disk: keyof typeof DISKS, what: WhatToRun): Promise<RemoteProcess> {
    const mountPoint = `/run/kata-containers/${id}/rootfs`
    const source = DISKS[disk].toString(16).padStart(2, '0')
    await pod.agent.createContainer({
      containerId: id,
      storages: [{ driver: 'blk', source, fstype: 'ext4', options: [], mountPoint }],
      OCI: containerSpec({ ...what, id, terminal: undefined, hostname: id, rootPath: mountPoint }),
    })
    await pod.agent.startContainer({ containerId: id })
    return new RemoteProcess(pod.agent, id)
  }

  const debian = (args: readonly string[]): WhatToRun => ({ args, env: [], cwd: '/', user: ROOT_USER })

  /** Runs nginx as its images do: in the foreground, with its logs linked to the standard streams. */
  const NGINX = debian([
    'sh',
    '-c',
    `ln -sf /dev/stdout /var/log/nginx/access.log
     exec nginx -g 'daemon off; error_log /dev/stderr notice;'`,
  ])

  it('are what they are: Debian with its shell, its users and its C library', async () => {
    const script = `. /etc/os-release; echo $ID $VERSION_CODENAME
      setpriv --reuid=www-data --regid=www-data --clear-groups id -un; ldd --version | head -n 1`
    const init = await run('debian', 'debian', debian(['bash', '-c', script]))
    expect((await init.readAll()).toString()).toMatch(/^debian bookworm\nwww-data\nldd \(Debian GLIBC 2\.36/)
    expect(await init.wait()).toBe(0)
    await pod.remove('debian')
  })

  it.each([
    ['SIGQUIT', SIGQUIT, 'gracefully shutting down'],
    ['SIGTERM', SIGTERM, 'exiting'],
  ])(
    'serve: nginx answers on the loopback, logs to /dev/stdout, and ends at %s',
    async (name, signal, words) => {
      const id = `nginx-${signal}`
      const nginx = await run(id, 'debian', NGINX)
      const errors = collect(nginx, 'stderr')
      await errors.until('start worker process ')
      const page = await pod.output(`client-${signal}`, `wget -q -O - -U ${name} http://127.0.0.1/`)
      expect(page).toContain('<title>Welcome to nginx!</title>')
      expect(await nginx.readUntil(`"${name}"\n`)).toMatch(
        /^127\.0\.0\.1 - - .* "GET \/ HTTP\/1\.1" 200 \d+ /,
      )
      await nginx.signal(signal)
      expect(await errors.whole).toContain(words)
      expect(await nginx.readAll()).toHaveLength(0)
      expect(await nginx.wait()).toBe(0)
      await pod.remove(id)
      await expect(pod.output(`late-${signal}`, 'wget -q -O - http://127.0.0.1/')).rejects.toThrow('refused')
      await pod.remove(`late-${signal}`)
    },
  )

  it('are an OCI image: its layers one over the other, its command, its user and its environment', async () => {
    const init = await run('image', 'image', image)
    expect((await init.readAll()).toString()).toBe('hello app 1234 /srv\nabove\nopaque: new\nlist: kept\n')
    expect(await init.wait()).toBe(0)
    await pod.remove('image')
  })
})

function collect(process: RemoteProcess, stream: 'stdout' | 'stderr') {
  let text = ''
  const waiters: (() => void)[] = []
  const read = async () => {
    for (let chunk = await process.read(stream); chunk.length > 0; chunk = await process.read(stream)) {
      text += chunk.toString()
      for (const look of waiters) look()
    }
    return text
  }
  const whole = read()
  return {
    whole,
    until: (words: string) =>
      new Promise<void>((resolve, reject) => {
        whole.then(() => reject(new Error(`it ended before ${words}: ${text}`)), reject)
        const look = () => {
          if (text.includes(words)) resolve()
        }
        waiters.push(look)
        look()
      }),
  }
}

function disksOf(paths: Readonly<Record<keyof typeof DISKS, string>>): NonNullable<GuestParts['extra']> {
  const entries = (['debian', 'image'] as const).map((name) => {
    const backend = specKey(`${name}-file`)
    return {
      device: [specKey(name), { kind: 'disk', slot: DISKS[name], serial: name, backend }] as const,
      backend: [backend, { kind: 'file', path: paths[name], access: 'scratch' }] as const,
    }
  })
  return {
    devices: Object.fromEntries(entries.map(({ device }) => device)),
    backends: Object.fromEntries(entries.map(({ backend }) => backend)),
  }
}

/** The upper layer changes, hides and adds files of the lower layer. Returns the layout. */
function makeImage(folder: string): string {
  const [lower, upper] = [makeFolder(folder, 'lower'), makeFolder(folder, 'upper')]
  const put = (path: string, text: string) => {
    mkdirSync(dirname(path), { recursive: true })
    writeFileSync(path, text)
  }
  mkdirSync(join(lower, 'bin'))
  cpSync('/bin/busybox', join(lower, 'bin/busybox'))
  for (const applet of ['sh', 'ls', 'cat', 'id']) symlinkSync('busybox', join(lower, 'bin', applet))
  put(join(lower, 'etc/passwd'), 'root:x:0:0::/:/bin/sh\napp:x:1234:1234::/srv:/bin/sh\n')
  put(join(lower, 'srv/changed'), 'below\n')
  for (const name of ['kept', 'hidden']) put(join(lower, 'srv/list', name), '')
  put(join(lower, 'srv/opaque/old'), '')
  put(join(upper, 'srv/changed'), 'above\n')
  put(join(upper, 'srv/list/.wh.hidden'), '')
  put(join(upper, 'srv/opaque/.wh..wh..opq'), '')
  put(join(upper, 'srv/opaque/new'), '')
  const layout = join(folder, 'layout')
  writeOciLayout(layout, {
    layers: [lower, upper].map(archiveOf),
    config: {
      Entrypoint: ['/bin/sh', '-c'],
      Cmd: [
        'echo $GREETING $(id -un) $(id -u) $PWD; cat changed; echo opaque: $(ls opaque); echo list: $(ls list)',
      ],
      Env: ['PATH=/bin', 'GREETING=hello'],
      User: 'app',
      WorkingDir: '/srv',
    },
  })
  return layout
}

function archiveOf(folder: string): Buffer {
  return execFileSync('tar', ['--create', '--numeric-owner', '--owner=0', '--group=0', '-C', folder, '.'], {
    maxBuffer: 2 ** 25,
  })
}

function makeFolder(parent: string, name: string): string {
  const path = join(parent, name)
  mkdirSync(path)
  // The folder becomes a file system's root, so its mode must not depend on the umask.
  chmodSync(path, 0o755)
  return path
}
