import { describe, expect, it } from 'vitest'
import { KnownHoles } from '../../../src/handlers/oci-runtime/client.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { recordingLog } from '../../support/fakes/recording-log.ts'

const NOVEMBER = 'CVE-2025-31133 CVE-2025-52565 CVE-2025-52881'
const open = (runtimeVersion: string, advisories: string) => ({
  level: 'warn',
  message: 'runtime has known break-outs',
  fields: { runtime: '/usr/sbin/x', runtimeVersion, advisories },
})

describe('KnownHoles', () => {
  const warned = async (kind: 'runc' | 'crun', stdout: string) => {
    const os = new FakeOs()
    const { log, lines } = recordingLog()
    os.tools.script(() => ({ stdout }))
    await os.files.put('/usr/sbin/x', '')
    const holes = new KnownHoles(os, { kind, binary: '/usr/sbin/x', log })
    await holes.look()
    await holes.look()
    expect(os.tools.calls.map(({ argv }) => argv)).toEqual([['/usr/sbin/x', '--version']])
    return lines
  }

  it.each([
    [
      'Debian 12',
      'runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\nspec: 1.0.2-dev\n',
      '1.1.5+ds1-1+deb12u1',
      NOVEMBER,
    ],
    [
      'upstream',
      'runc version 1.1.11\ncommit: v1.1.11-0-g4bccb38c\nspec: 1.0.2-dev\n',
      '1.1.11',
      `CVE-2024-21626 ${NOVEMBER}`,
    ],
    ['a build without a commit', 'runc version 1.3.2\nspec: 1.2.0\n', '1.3.2', NOVEMBER],
  ])('warns of the runc of %s, and names the advisories', async (_of, output, version, advisories) => {
    expect(await warned('runc', output)).toEqual([open(version, advisories)])
  })

  it.each([
    ['runc', 'runc version 1.3.6+ds1\ncommit: 1.3.6+ds1-1\nspec: 1.2.1\n'],
    ['crun', 'crun version 1.8.1\ncommit: f8a096be060b22ccd3d5f3ebe44108517fbf6c30\nrundir: /run/crun\n'],
  ] as const)('does not warn of a %s without a known break-out', async (kind, output) => {
    expect(await warned(kind, output)).toEqual([])
  })

  it('checks again when the program of the runtime was replaced', async () => {
    const os = new FakeOs()
    const { log, lines } = recordingLog()
    const holes = new KnownHoles(os, { kind: 'runc', binary: '/usr/sbin/x', log })
    await holes.look()
    for (const version of ['1.3.6', '1.3.2', '1.1.11']) {
      await os.files.put(`/usr/sbin/${version}`, '')
      await os.files.rename(`/usr/sbin/${version}`, '/usr/sbin/x')
      os.tools.script(() => ({ stdout: `runc version ${version}\n` }))
      await holes.look()
      await holes.look()
    }
    const missing = {
      level: 'warn',
      message: 'OCI runtime missing',
      fields: { runtime: '/usr/sbin/x' },
    }
    expect(lines).toEqual([missing, open('1.3.2', NOVEMBER), open('1.1.11', `CVE-2024-21626 ${NOVEMBER}`)])
  })

  it('says that the version is not known', async () => {
    expect(await warned('runc', 'hello\n')).toMatchObject([
      {
        message: 'version of the runtime unknown',
        fields: { error: 'runtime version "": want MAJOR.MINOR.PATCH' },
      },
    ])
  })
})
