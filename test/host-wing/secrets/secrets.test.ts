import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { MAX_SECRET_BYTES, openSecrets } from '../../../src/host/secrets/secrets.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const UUID = '6b3f0c62-3d1e-4f0a-9a55-0f4f8f0c2d11'
const OTHER = '0a7c6c1e-5f0e-4e4e-9a55-0f4f8f0c2d11'
const value = Buffer.from('hunter2')

describe('secrets', () => {
  it('are in files that only their user can read, by tenant and UUID in any notation', async () => {
    const folder = join(temporaryFolder(), 'secrets')
    const secrets = await openSecrets(folder)
    expect(await secrets.list(undefined)).toEqual([])
    await secrets.set('anne', UUID.toUpperCase(), value)
    await secrets.set('', OTHER, value)
    await secrets.set('anne', `{${UUID}}`, Buffer.from('another'))
    const file = await secrets.file('anne', UUID)
    expect([statSync(file).mode & 0o777, statSync(folder).mode & 0o777]).toEqual([0o600, 0o700])
    const again = await openSecrets(folder)
    expect(await again.list(undefined)).toMatchObject([
      { tenant: '', uuid: OTHER },
      { tenant: 'anne', uuid: UUID },
    ])
    expect(await again.list('anne')).toMatchObject([{ uuid: UUID }])
    await expect(again.file('bob', UUID)).rejects.toMatchObject({ code: 'NOT_FOUND' })
    await again.remove('anne', UUID)
    await again.remove('anne', UUID)
    expect(await again.list('anne')).toEqual([])
  })

  it('are whole: what a crash has left unfinished goes at the next start', async () => {
    const folder = join(temporaryFolder(), 'secrets')
    await (await openSecrets(folder)).set('', UUID, value)
    writeFileSync(join(folder, 'admin', `${OTHER}.new`), 'hun')
    expect(await (await openSecrets(folder)).list('')).toMatchObject([{ uuid: UUID }])
    expect(readdirSync(join(folder, 'admin'))).toEqual([UUID])
  })

  it('that cannot be written are named by their UUIDs', async () => {
    const folder = join(temporaryFolder(), 'secrets')
    const secrets = await openSecrets(folder)
    await secrets.set('', UUID, value)
    mkdirSync(join(folder, 'admin', `${OTHER}.new`))
    await expect(secrets.set('', OTHER, value)).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringMatching(`^secret ${OTHER}: not written: E`),
    })
  })

  it('have room for a certificate and a key of RSA-4096', async () => {
    const secrets = await openSecrets(join(temporaryFolder(), 'secrets'))
    const pem = Buffer.alloc(5069, 'x')
    await secrets.set('', UUID, pem)
    expect(readFileSync(await secrets.file('', UUID))).toEqual(pem)
  })

  it('are refused without a word of what was given', async () => {
    const secrets = await openSecrets(join(temporaryFolder(), 'secrets'))
    for (const wrong of ['hunter2', '../../etc/passwd', 'h'.repeat(36), ''])
      await expect(secrets.set('', wrong, value)).rejects.toMatchObject({ message: 'uuid: not a UUID' })
    for (const length of [0, MAX_SECRET_BYTES + 1]) {
      const message = `value: ${length} bytes, want 1 to 16384`
      await expect(secrets.set('', UUID, Buffer.alloc(length, 'x'))).rejects.toMatchObject({ message })
    }
  })
})
