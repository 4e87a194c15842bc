import { describe, expect, it } from 'vitest'
import { parseImageUrl } from '../../../src/host/root-disk/image-url.ts'

const DIGEST = '0123456789abcdef'.repeat(4)

describe('parseImageUrl', () => {
  it('takes the digest, and shows neither password nor query', () => {
    const image = parseImageUrl(
      `https://anne:secret@host:8443/a/b.img?token=1#sha256=${DIGEST.toUpperCase()}`,
    )
    expect(image.url.href).toBe('https://anne:secret@host:8443/a/b.img?token=1')
    expect(image.shown).toBe('https://host:8443/a/b.img')
    expect(image.sha256).toBe(DIGEST)
    expect(image.identity).toMatch(/^[0-9a-f]{64}$/)
  })

  it('tells images apart by their query, but not by who fetches them', () => {
    const [plain, other, anne] = ['http://host/?a=1', 'http://host/?a=2', 'http://anne:b@host/?a=1'].map(
      (url) => parseImageUrl(url).identity,
    )
    expect(anne).toBe(plain)
    expect(other).not.toBe(plain)
  })

  it.each([
    ['', 'initial_image.url: is not a URL, want http, https or file'],
    ['/srv/image', 'initial_image.url: is not a URL, want http, https or file'],
    ['ftp://anne:secret@host/image', 'ftp://host/image: scheme ftp:, want http, https or file'],
    ['file://host/image', 'file://host/image: has a host, want file:///PATH'],
    ['file:///a%2fb', 'file:///a%2fb: has an encoded / or NUL'],
    ['file:///a%00b', 'file:///a%00b: has an encoded / or NUL'],
    ['file:///a%zz', 'file:///a%zz: has a % that encodes no character'],
    ['file:///a%ff', 'file:///a%ff: has a % that encodes no character'],
    ['http://host/i#sha256=12', 'http://host/i: unknown fragment, want #sha256= and 64 hexadecimal digits'],
    ['http://host/i#md5=12', 'http://host/i: unknown fragment, want #sha256= and 64 hexadecimal digits'],
  ])('refuses %s', (url, message) => {
    expect(() => parseImageUrl(url)).toThrow(expect.objectContaining({ code: 'INVALID_ARGUMENT', message }))
  })
})
