import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  instanceFolderName,
  isUuid,
  nodeNames,
  qemuId,
  type SpecKey,
  specKey,
} from '../../../src/host/spec/spec-key.ts'

const UUID = '0b7e4a52-9c7e-4a63-8f3e-2f3f5d6a7b8c'
const DIGITS = UUID.replaceAll('-', '')

const names = fc.oneof(
  fc.string({ minLength: 1, maxLength: 130, unit: 'grapheme' }),
  fc.string({ minLength: 1, maxLength: 130 }),
  fc.stringMatching(/^[\w.-]{1,40}$/),
  fc.uuid(),
)

function keyOrUndefined(text: string): SpecKey | undefined {
  try {
    return specKey(text)
  } catch {
    return undefined
  }
}

describe('specKey', () => {
  it.each([UUID, UUID.toUpperCase(), DIGITS, DIGITS.toUpperCase(), `{${UUID}}`, `urn:uuid:${UUID}`])(
    'makes one key of all notations of a UUID: %s',
    (text) => {
      expect(specKey(text)).toBe(UUID)
    },
  )

  it.each([
    'Disk 1, "a"',
    '9disk',
    '..',
    'constructor',
    `${UUID}-backend`,
    `{${DIGITS}}`,
    DIGITS.slice(1),
    'ä'.repeat(64),
  ])('keeps the name %j', (text) => {
    expect(specKey(text)).toBe(text)
    expect(isUuid(specKey(text))).toBe(false)
  })

  it.each([
    ['', 'key "": 0 bytes, want 1 to 128'],
    ['a'.repeat(129), '129 bytes, want 1 to 128'],
    ['ä'.repeat(65), '130 bytes, want 1 to 128'],
    ['a/b', 'key "a/b": has a control character or "/"'],
    ['a\nb', 'has a control character'],
    ['a\x7fb', 'has a control character'],
    ['a\x85b', 'has a control character'],
    ['a\ud800b', 'has a control character'],
    ['__proto__', 'key "__proto__": reserved'],
  ])('refuses %j', (text, sentence) => {
    expect(() => specKey(text)).toThrow(sentence)
  })

  it('says little of a name that is much too long', () => {
    expect(() => specKey('a'.repeat(1 << 20))).toThrow(/^.{1,200}$/)
  })

  it('prints each key as what makes it again', () => {
    fc.assert(
      fc.property(names, (text) => {
        const key = keyOrUndefined(text)
        expect(key === undefined ? undefined : specKey(key)).toBe(key)
      }),
    )
  })
})

describe('instanceFolderName', () => {
  it('is a UUID, or a digest of a name', () => {
    expect(instanceFolderName(specKey(UUID.toUpperCase()))).toBe(UUID)
    expect(instanceFolderName(specKey('..'))).toBe('n-5ec1f7e700f37c3d0b2981d04855fc34')
  })
})

describe('qemuId', () => {
  it('returns ids that begin with a letter and are not the name of a property', () => {
    expect(qemuId(specKey(UUID))).toBe(`uuid-${UUID}`)
    expect(qemuId(specKey('root'))).toBe('name-root')
    expect(qemuId(specKey('a.b'))).toMatch(/^hash-[\w-]{43}$/)
  })

  it('gives each key other names, which QEMU accepts', () => {
    const idsOf = (key: SpecKey) => {
      const { format, file, otherFile } = nodeNames(key)
      expect(`${format} ${file} ${otherFile}`).toMatch(/^[a-z][\w.-]{1,30}( [a-z][\w.-]{1,30}){2}$/)
      expect(qemuId(key)).toMatch(/^[a-z][\w-]{1,69}$/)
      return [new Set([format, qemuId(key)]), new Set([file]), new Set([otherFile])].flatMap((set) => [
        ...set,
      ])
    }
    fc.assert(
      fc.property(fc.uniqueArray(names, { maxLength: 40 }), (texts) => {
        const keys = new Set(texts.map(keyOrUndefined).filter((key) => key !== undefined))
        const ids = [...keys].flatMap(idsOf)
        expect(new Set(ids).size).toBe(ids.length)
      }),
    )
  })
})
